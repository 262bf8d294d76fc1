// Live settings of a queue: what is in force, who changed it, change it, back to the code.
import { useState } from "preact/hooks";
import { at, put, remove } from "../api";
import { useAsk } from "../ask";
import { duration } from "../format";
import { Ago, Button, Card, Tag } from "../parts/basics";
import { Shown } from "../parts/blank";
import { confirm, FormDialog } from "../parts/dialog";
import { Field } from "../parts/field";
import { doing, say } from "../parts/toast";
import { place, refine } from "../route";
import { admin } from "../session";
import { t } from "../words";
import type { Queue, Settings } from "../wire";

interface RateValue {
  count: number;
  per: number;
}
interface RetryValue {
  attempts: number;
  backoff: string;
  delay: number;
  max_delay: number;
  jitter: number;
  delays: number[] | null;
}

interface KeepValue {
  completed: number | null;
  failed: number | null;
  completed_for: number | null;
  failed_for: number | null;
}

const keepOf = (told: Settings) => told.settings.keep as KeepValue;
const text = (value: unknown) => (value == null ? "" : String(value));
const number = (value: string) => (value === "" ? null : Number(value));

export function SettingsCard({ queue }: { queue: Queue }) {
  const asked = useAsk<Settings>(at.queue(queue.name, "/settings"), { every: 8000 });
  const [editing, setEditing] = useState(admin.value && place.value.query.get("edit") === "settings");
  const close = () => {
    setEditing(false);
    refine({ edit: null }, { replace: true });
  };
  return (
    <Card title={t("Settings")} aside={admin.value && asked.data && <Button small icon="edit" onClick={() => setEditing(true)}>{t("Change")}</Button>}>
      <Shown answer={asked} rows={4}>
        {(told) => (
          <>
            <dl class="facts">
              <Setting name={t("Concurrency per worker")} of="concurrency" told={told} value={String(told.settings.concurrency)} queue={queue} then={asked.again} />
              <Setting name={t("Concurrency over all workers")} of="max_active" told={told} value={told.settings.max_active == null ? t("no limit") : String(told.settings.max_active)} queue={queue} then={asked.again} />
              <Setting name={t("Rate limit over all workers")} of="rate" told={told} value={rateText(told.settings.rate as RateValue | null)} queue={queue} then={asked.again} />
              <Setting name={t("Attempts")} of="retry" told={told} value={retryText(told.settings.retry as RetryValue)} queue={queue} then={asked.again} />
              <Setting name={t("Timeout")} of="timeout" told={told} value={told.settings.timeout == null ? t("none") : duration((told.settings.timeout as number) * 1000)} queue={queue} then={asked.again} />
              <Setting name={t("Kept when completed")} of="keep" told={told} value={keepText(keepOf(told).completed, keepOf(told).completed_for)} queue={queue} then={asked.again} />
              <Setting name={t("Kept when failed")} of="keep" told={told} value={keepText(keepOf(told).failed, keepOf(told).failed_for)} queue={queue} then={asked.again} />
            </dl>
            {told.history.length > 0 && (
              <details class="more">
                <summary>{t("Last changes")}</summary>
                <ul class="rows">
                  {told.history.slice(0, 10).map((one) => (
                    <li key={one.at + one.setting}>
                      <span class="row-main">
                        {one.by}: {one.setting} → <span class="mono">{one.after === null ? t("as in the code") : JSON.stringify(one.after)}</span>
                      </span>
                      <small class="faint"><Ago at={one.at} /></small>
                    </li>
                  ))}
                </ul>
              </details>
            )}
            {editing && <Edit queue={queue} told={told} onClose={close} then={asked.again} />}
          </>
        )}
      </Shown>
    </Card>
  );
}

function Setting({ name, of, told, value, queue, then }: { name: string; of: string; told: Settings; value: string; queue: Queue; then: () => Promise<void> }) {
  const changed = told.changed[of];
  const reset = () =>
    confirm({
      title: t("Back to what the code says?"),
      text: name,
      action: t("Reset"),
      submit: async () => {
        await remove(at.queue(queue.name, `/settings?setting=${of}`));
        await then();
      },
    });
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {value}
        {changed && (
          <>
            <span title={changed.at}>
              <Tag tone="accent">{t("by {who}", { who: changed.by })}</Tag>
            </span>
            {admin.value && <Button kind="ghost" small onClick={reset}>{t("Reset")}</Button>}
          </>
        )}
      </dd>
    </div>
  );
}

function rateText(rate: RateValue | null): string {
  return rate ? t("{n} in {time}", { n: rate.count, time: duration(rate.per * 1000) }) : t("no limit");
}

function retryText(retry: RetryValue): string {
  if (retry.delays) return `${retry.delays.length + 1}: ${retry.delays.map((s) => duration(s * 1000)).join(", ")}`;
  return `${retry.attempts}, ${retry.backoff === "fixed" ? t("fixed") : t("exponential")} ${duration(retry.delay * 1000)}`;
}

function keepText(many: unknown, seconds: unknown): string {
  const parts = [];
  if (typeof many === "number") parts.push(t("{n} job|{n} jobs", { n: many }));
  if (typeof seconds === "number") parts.push(duration(seconds * 1000));
  return parts.join(" / ") || t("forever");
}

function Edit({ queue, told, onClose, then }: { queue: Queue; told: Settings; onClose: () => void; then: () => Promise<void> }) {
  const rate = told.settings.rate as RateValue | null;
  const retry = told.settings.retry as RetryValue;
  const keep = keepOf(told);
  const before = {
    concurrency: String(told.settings.concurrency),
    maxActive: told.settings.max_active == null ? "" : String(told.settings.max_active),
    rate: rate ? String(rate.count) : "",
    per: rate ? String(rate.per) : "1",
    delays: retry.delays?.join(", ") ?? "",
    timeout: text(told.settings.timeout),
    completed: text(keep.completed),
    completedFor: text(keep.completed_for),
    failed: text(keep.failed),
    failedFor: text(keep.failed_for),
  };
  const [now, set] = useState(before);
  const change = (part: Partial<typeof before>) => set((old) => ({ ...old, ...part }));
  const submit = async () => {
    const body: Record<string, unknown> = {};
    if (now.concurrency !== before.concurrency) body.concurrency = Number(now.concurrency);
    if (now.maxActive !== before.maxActive) body.maxActive = now.maxActive === "" ? null : Number(now.maxActive);
    if (now.rate !== before.rate || now.per !== before.per) body.rate = now.rate === "" ? null : { count: Number(now.rate), per: Number(now.per) };
    if (now.delays !== before.delays) body.retry = { delays: now.delays.split(/[\s,]+/).filter(Boolean).map(Number) };
    if (now.timeout !== before.timeout) body.timeout = number(now.timeout);
    const kept = ["completed", "completedFor", "failed", "failedFor"] as const;
    if (kept.some((name) => now[name] !== before[name])) body.keep = Object.fromEntries(kept.map((name) => [name, number(now[name])]));
    if (Object.keys(body).length) {
      await put(at.queue(queue.name, "/settings"), body);
      say(t("The settings of {queue} were changed", { queue: queue.name }));
    }
    await then();
  };
  const resetAll = async () => {
    if (await doing(() => remove(at.queue(queue.name, "/settings")), t("As in the code again"))) {
      await then();
      onClose();
    }
  };
  return (
    <FormDialog title={t("Settings of {queue}", { queue: queue.name })} action={t("Change")} submit={submit} onClose={onClose}>
      <p class="dialog-text">{t("They are in force for all workers within a second, until they are reset.")}</p>
      <div class="fields">
        <Field label={t("Concurrency per worker")} type="number" value={now.concurrency} onInput={(concurrency) => change({ concurrency })} required autofocus />
        <Field label={t("Concurrency over all workers")} type="number" value={now.maxActive} onInput={(maxActive) => change({ maxActive })} placeholder={t("no limit")} />
        <Field label={t("Rate limit")} type="number" value={now.rate} onInput={(value) => change({ rate: value })} placeholder={t("no limit")} />
        <Field label={t("Window in seconds")} type="number" value={now.per} onInput={(per) => change({ per })} />
        <Field wide label={t("Waits between attempts, in seconds")} value={now.delays} onInput={(delays) => change({ delays })} placeholder="1, 5, 15, 60, 300" hint={t("One attempt more than there are waits. Empty leaves it as it is.")} />
        <Field wide label={t("Timeout of a run, in seconds")} type="number" value={now.timeout} onInput={(timeout) => change({ timeout })} placeholder={t("none")} />
        <Field label={t("Completed jobs to keep")} type="number" value={now.completed} onInput={(completed) => change({ completed })} placeholder={t("no limit")} />
        <Field label={t("Keep them for seconds")} type="number" value={now.completedFor} onInput={(completedFor) => change({ completedFor })} placeholder={t("no limit")} />
        <Field label={t("Failed jobs to keep")} type="number" value={now.failed} onInput={(failed) => change({ failed })} placeholder={t("no limit")} />
        <Field label={t("Keep failed ones for seconds")} type="number" value={now.failedFor} onInput={(failedFor) => change({ failedFor })} placeholder={t("no limit")} />
      </div>
      {Object.keys(told.changed).length > 0 && (
        <p>
          <Button small icon="retry" onClick={resetAll}>{t("Everything as in the code")}</Button>
        </p>
      )}
    </FormDialog>
  );
}
