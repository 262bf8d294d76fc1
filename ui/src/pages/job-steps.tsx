// A durable job: its steps as a waterfall, the signal that it waits for with its form, and forks from a step.
import { useEffect, useMemo, useState } from "preact/hooks";
import { at, post } from "../api";
import { useAsk } from "../ask";
import { clock, duration, moment } from "../format";
import { ArgumentsField } from "../parts/arguments";
import { Ago, Button, Card, Tag } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { Area } from "../parts/field";
import { Icon } from "../parts/icon";
import { Json } from "../parts/json";
import { fieldsOf, SchemaForm, valueOf, type Written } from "../parts/schema-form";
import { doing, say } from "../parts/toast";
import { go, to } from "../route";
import { me, operator } from "../session";
import { t } from "../words";
import type { Accepted, Job, Step, Steps } from "../wire";
import { StreamCard } from "./job-stream";
import { asObject } from "./queue-enqueue";

const WAIT = "wait_for ";
const OPEN = new Set<Step["state"]>(["sleeping", "waiting", "calling"]);

export function DurableJob({ job, ended }: { job: Job; ended: boolean }) {
  const asked = useAsk<Steps>(at.job(job.queue, job.id, "/steps"), { every: ended ? 0 : 1500, always: true });
  useEffect(() => {
    void asked.again(); // the last steps come with the end
  }, [ended, job.attempt]);
  const recorded = asked.data?.jobId === job.id ? asked.data.steps : [];
  // Nothing is tried again after the end of the job.
  const steps = recorded.map((one) => (ended && one.state === "retrying" ? { ...one, state: "failed" as const } : one));
  return (
    <>
      {job.waitsFor.map((name) => (
        <WaitCard key={name} job={job} name={name} step={steps.find((one) => one.state === "waiting" && one.name === WAIT + name)} then={asked.again} />
      ))}
      {(steps.length > 0 || job.forkedFrom) && <StepsCard job={job} steps={steps} ended={ended} />}
      <StreamCard job={job} ended={ended} />
    </>
  );
}

function StepsCard({ job, steps, ended }: { job: Job; steps: Step[]; ended: boolean }) {
  const [forking, setForking] = useState<Step | null>(null);
  const times = steps.map((one) => Date.parse(one.startedAt));
  const first = Math.min(...times);
  const now = ended ? 0 : clock.value;
  const ends = steps.map((one, n) => (OPEN.has(one.state) && !ended ? Math.max(now, times[n]!) : times[n]! + one.durationMs));
  const span = Math.max(Math.max(...ends) - first, 1);
  return (
    <Card
      title={t("Steps")}
      aside={
        job.forkedFrom && (
          <small>
            {t("Forked from")} <a class="mono" href={to.job(job.queue, job.forkedFrom)}>{job.forkedFrom}</a>
          </small>
        )
      }
    >
      <ol class="steps" aria-label={t("Steps")}>
        {steps.map((one, n) => (
          <li key={one.number} class={one.state}>
            <details>
              <summary>
                <span class="num faint">{one.number}</span>
                <span class="cut" title={one.name}>{one.name}</span>
                <span class="waterfall-line" title={moment(one.startedAt)}>
                  <i style={{ left: `min(${(100 * (times[n]! - first)) / span}%, 100% - 2px)`, width: `${(100 * (ends[n]! - times[n]!)) / span}%` }} />
                </span>
                <span class="num">{duration(ends[n]! - times[n]!)}</span>
                <span class="step-state"><StateOf step={one} /></span>
              </summary>
              <StepDetails step={one} />
            </details>
            {ended && operator.value && (
              <Button small icon="flows" label={t("Fork from step {n}", { n: one.number })} onClick={() => setForking(one)}>
                {t("Fork")}
              </Button>
            )}
          </li>
        ))}
      </ol>
      {forking && <Fork job={job} step={forking} onClose={() => setForking(null)} />}
    </Card>
  );
}

function StateOf({ step }: { step: Step }) {
  const tone = step.state === "failed" ? "bad" : step.state === "retrying" ? "warn" : OPEN.has(step.state) ? "accent" : "good";
  return (
    <>
      <Tag tone={tone}>{t(step.state)}</Tag> {step.attempts > 1 && <small class="faint">{t("{n} attempt|{n} attempts", { n: step.attempts })}</small>}
    </>
  );
}

function StepDetails({ step }: { step: Step }) {
  return (
    <div class="step-details">
      <p class="faint">
        <Ago at={step.startedAt} />
        {step.until && <> · {t("until {time}", { time: moment(step.until) })}</>}
        {step.called && (
          <>
            {" · "}
            <a href={to.job(step.called.queue, step.called.id)}>{t("the job it has called")}</a>
          </>
        )}
      </p>
      {step.error !== null && <p class="error-line">{step.error}</p>}
      {step.omitted && <p class="faint">{t("The result is left out, because all of them together are too large.")}</p>}
      {!step.omitted && step.error === null && !OPEN.has(step.state) && (me.value?.seesPayloads ? <Json value={step.result} label={t("Result of step {n}", { n: step.number })} /> : <p class="faint">{t("This server shows arguments to admins only.")}</p>)}
    </div>
  );
}

function WaitCard({ job, name, step, then }: { job: Job; name: string; step: Step | undefined; then: () => Promise<void> }) {
  const [written, setWritten] = useState<Written>({});
  const schema = step?.schema ?? null;
  const fields = useMemo(() => fieldsOf(schema), [JSON.stringify(schema)]);
  const [error, setError] = useState<string | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    let value: unknown;
    try {
      value = valueOf(fields, written);
    } catch (why) {
      return setError((why as Error).message);
    }
    setError(null);
    if (await doing(() => post(at.job(job.queue, job.id, "/signal"), { name, value }), t("The signal was sent"))) await then();
  };
  return (
    <Card title={t("Waits for the signal {name}", { name })} aside={step?.until && <small class="faint">{t("until {time}", { time: moment(step.until) })}</small>}>
      {operator.value ? (
        <form class="signal-form" onSubmit={(event) => void submit(event)} aria-label={t("Send the signal {name}", { name })}>
          <SchemaForm fields={fields} written={written} onWrite={setWritten} />
          {error && (
            <p class="form-error" role="alert">
              <Icon name="failed" />
              <span>{error}</span>
            </p>
          )}
          <button type="submit" class="button primary">{t("Send the signal")}</button>
        </form>
      ) : (
        <p class="faint">{t("Operators can send it.")}</p>
      )}
    </Card>
  );
}

function newId(): string {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((one) => one.toString(16).padStart(2, "0")).join("");
}

function Fork({ job, step, onClose }: { job: Job; step: Step; onClose: () => void }) {
  const before = JSON.stringify(job.payload ?? {}, null, 2);
  const [payload, setPayload] = useState(before);
  const [results, setResults] = useState("{}");
  const id = useMemo(newId, []); // two clicks are one fork
  const submit = async () => {
    const body = { step: step.number, results: asObject(results), id, ...(payload === before ? {} : { payload: asObject(payload) }) };
    const made = await post<Accepted>(at.job(job.queue, job.id, "/fork"), body);
    say(t("The fork was enqueued"));
    go(to.job(job.queue, made.jobId));
  };
  return (
    <FormDialog title={t("Fork from step {n}", { n: step.number })} action={t("Fork")} wide onClose={onClose} submit={submit}>
      <p class="dialog-text">{t("A new job gets a copy of the steps before {name}, which do not run again. It runs from {name} on.", { name: step.name })}</p>
      {me.value?.seesPayloads && <ArgumentsField queue={job.queue} task={job.task} value={payload} onInput={setPayload} rows={6} />}
      <Area label={t("Other results of earlier steps, by number or name (JSON)")} value={results} onInput={setResults} rows={3} />
    </FormDialog>
  );
}
