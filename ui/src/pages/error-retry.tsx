// Retry all jobs of a kind of error: with a rate, and with changed arguments, which a preview of five jobs shows first.
import { useEffect, useState } from "preact/hooks";
import { at, Problem, send } from "../api";
import { count } from "../format";
import { changes } from "../live";
import { FormDialog } from "../parts/dialog";
import { Area, Field } from "../parts/field";
import { operate } from "../parts/operations";
import { say } from "../parts/toast";
import { t, translated } from "../words";
import type { Facets, PatchedJob, PatchPreview } from "../wire";

interface Props {
  queue: string;
  kind: string;
  error: string;
  matched: Facets | undefined;
  onClose: () => void;
}

export function RetryAll({ queue, kind, error, matched, onClose }: Props) {
  const [rate, setRate] = useState("");
  const [limit, setLimit] = useState("");
  const [text, setText] = useState("");
  const patch = patchIn(text);
  const exact = matched !== undefined && matched.scanned >= matched.total;
  const n = `${count(matched?.matched ?? 0)}${exact ? "" : "+"}`;
  return (
    <FormDialog
      title={t("Retry {n} jobs?", { n })}
      action={t("Retry")}
      onClose={onClose}
      wide
      disabled={patch === null}
      submit={async () => {
        const body = { action: "retry", state: "failed", fingerprint: kind, rate: rate ? Number(rate) : undefined, limit: limit ? Number(limit) : undefined, patch: patch ?? undefined };
        void operate(queue, body).then((ended) => {
          changes.value++;
          const left = ended.refused > 0 ? ` ${t("{n} stays a dead letter: {why}|{n} stay dead letters: {why}", { n: ended.refused, why: translated(ended.refusal ?? "") })}` : "";
          say(ended.error ? translated(ended.error) : t("{n} job runs again|{n} jobs run again", { n: ended.done }) + (left && `.${left}`), { bad: ended.error !== null || ended.refused > 0 });
        });
      }}
    >
      <p class="error-line">{error}</p>
      <p class="dialog-text">{t("They are enqueued again, the oldest first, with all their attempts.")}</p>
      <div class="fields">
        <Field label={t("How many a second at most")} type="number" value={rate} onInput={setRate} placeholder={t("no limit")} />
        <Field label={t("How many in all at most")} type="number" value={limit} onInput={setLimit} placeholder={t("all")} />
      </div>
      <Area label={t("Changed arguments, as JSON")} rows={3} value={text} onInput={setText} hint={patch === null ? <span class="bad-text">{t("This is not a JSON object")}</span> : t('Optional. {example} sets one argument and deletes the other.', { example: '{"server": "smtp2", "trace": null}' })} />
      {patch && <Preview queue={queue} kind={kind} patch={patch} />}
    </FormDialog>
  );
}

type Patch = Record<string, unknown>;

/** The patch in a text: undefined without one, null where it is none. */
function patchIn(text: string): Patch | undefined | null {
  if (!text.trim()) return undefined;
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0 ? (value as Patch) : null;
  } catch {
    return null;
  }
}

function Preview({ queue, kind, patch }: { queue: string; kind: string; patch: Patch }) {
  const [told, setTold] = useState<PatchPreview | Problem | null>(null);
  const wanted = JSON.stringify(patch);
  useEffect(() => {
    const gone = new AbortController();
    const timer = setTimeout(() => {
      send<PatchPreview>("POST", at.queue(queue, "/operations/preview"), { fingerprint: kind, patch: JSON.parse(wanted) as Patch }, gone.signal).then(setTold, (why: unknown) => {
        if (why instanceof Problem) setTold(why);
      });
    }, 300);
    return () => {
      clearTimeout(timer);
      gone.abort();
    };
  }, [queue, kind, wanted]);
  return (
    <section class="patch-preview" aria-label={t("Preview")} aria-live="polite">
      {told instanceof Problem ? <p class="form-error" role="alert">{told.message}</p> : !told ? <p class="faint">{t("Loading …")}</p> : told.jobs.length === 0 ? <p class="faint">{t("No job matches")}</p> : told.jobs.map((one) => <Changed key={one.id} job={one} />)}
    </section>
  );
}

function Changed({ job }: { job: PatchedJob }) {
  const before = (job.before ?? {}) as Patch;
  const after = (job.after ?? {}) as Patch;
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  return (
    <div class={job.refusal ? "patched refused" : "patched"}>
      <span><span class="mono">…{job.id.slice(-6)}</span> <span class="faint">{job.task}</span></span>
      {job.refusal ? (
        <p class="bad-text">{t("Stays a dead letter: {why}", { why: translated(job.refusal) })}</p>
      ) : names.length === 0 ? (
        <p class="faint">{t("its arguments stay the same")}</p>
      ) : (
        <dl class="mono">
          {names.map((name) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                {name in before && <del>{JSON.stringify(before[name])}</del>} {name in after && <ins>{JSON.stringify(after[name])}</ins>}
              </dd>
            </div>
          ))}
        </dl>
      )}
    </div>
  );
}
