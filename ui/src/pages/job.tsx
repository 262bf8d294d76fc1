// One job: how it went so far, what it was given and gave back, why it is not running, and what can be done with it.
import { useEffect, useState } from "preact/hooks";
import { at, post, remove } from "../api";
import { useAsk } from "../ask";
import { clock, count, duration, moment } from "../format";
import { watch, watched } from "../live";
import { Ago, Bar, Button, Card, Copy, Head, StateBadge } from "../parts/basics";
import { Failed, Loading } from "../parts/blank";
import { confirm, FormDialog } from "../parts/dialog";
import { Area } from "../parts/field";
import { Icon, type IconName } from "../parts/icon";
import { Json } from "../parts/json";
import { doing, inAMoment, say } from "../parts/toast";
import { Traceback } from "../parts/traceback";
import { go, place, to } from "../route";
import { reason } from "../said";
import { admin, me, operator } from "../session";
import { t } from "../words";
import type { Job, Reason, Why } from "../wire";
import { JobChanges } from "./job-change";
import { LogCard } from "./job-log";
import { StackCard } from "./job-stack";
import { Timeline } from "./job-timeline";
import { RunTime } from "./job-usual";
import { JobFlow } from "./job-flow";
import { DurableJob } from "./job-steps";
import { asObject } from "./queue-enqueue";

const ENDED = new Set(["completed", "failed", "cancelled"]);
const icons: Partial<Record<Reason["code"], IconName>> = {
  running: "play",
  next: "right",
  due: "delayed",
  retry: "retry",
  "put-off": "delayed",
  sleeping: "delayed",
  rate: "delayed",
  "shared-limit": "delayed",
  paused: "pause",
  held: "pause",
  halted: "dead",
  flow: "flows",
  called: "flows",
  "no-worker": "workers",
  unread: "workers",
  "no-task": "workers",
  "no-label": "workers",
  resource: "workers",
  parked: "workers",
};

export function JobView() {
  const queue = place.value.query.get("queue") ?? "";
  const id = place.value.query.get("id") ?? "";
  const asked = useAsk<Job>(at.job(queue, id), { every: 3000 });
  useEffect(() => {
    watch({ queue, job: id });
    return () => watch(null);
  }, [queue, id]);
  const seen = watched.value;
  const state = seen?.id === id ? seen.state : undefined;
  useEffect(() => {
    if (state !== undefined) void asked.again();
  }, [state, seen?.attempt]);
  const job = asked.data;
  if (!job || job.id !== id || job.queue !== queue) return asked.error ? <Failed error={asked.error} again={asked.again} /> : <Loading rows={8} />;
  const live = seen?.id === id && seen.progress !== null ? seen : null;
  const progress = live?.progress ?? job.progress;
  const done = live ? live.done : job.progressDone;
  const total = live ? live.total : job.progressTotal;
  const note = live ? live.note : job.progressNote;
  return (
    <>
      <Head
        back={
          <>
            <a href={to.queue(queue)}>{queue}</a> <Icon name="right" size={11} /> <a href={to.jobs(queue, job.state)}>{t(job.state)}</a>
          </>
        }
        title={
          <>
            {job.task} <StateBadge state={job.state} />
          </>
        }
        under={
          <span class="id-line">
            <span class="mono">{job.id}</span>
            <Copy text={job.id} label={t("Copy the id")} />
          </span>
        }
      >
        {operator.value && <Actions job={job} then={asked.again} />}
      </Head>
      {job.state === "active" && progress !== null && (
        <Card>
          <div class="progress-line">
            <b>{Math.round(progress)} %</b>
            <Bar value={progress} of={100} label={t("Progress")} tone="good" />
            {total != null && <span class="faint">{`${done} / ${total}`}</span>}
            {note && <span>{note}</span>}
          </div>
        </Card>
      )}
      {!ENDED.has(job.state) && <WhyCard job={job} />}
      {job.state === "active" && operator.value && <StackCard job={job} />}
      {job.error && (
        <Card title={job.state === "cancelled" ? t("Why it was cancelled") : t("Error")} aside={<Copy text={[job.error, job.stacktrace].filter(Boolean).join("\n\n")} />}>
          <p class="error-line">{job.error}</p>
          {job.stacktrace && <Traceback text={job.stacktrace} />}
        </Card>
      )}
      <JobFlow job={job} />
      <DurableJob job={job} ended={ENDED.has(job.state)} />
      <div class="columns job-columns">
        <div class="stack">
          <Card title={t("Arguments")}>
            {me.value?.seesPayloads ? <Json value={job.payload} label={t("Arguments")} /> : <p class="faint">{t("This server shows arguments to admins only.")}</p>}
          </Card>
          {job.state === "completed" && (
            <Card title={t("Result")}>
              {me.value?.seesPayloads ? <Json value={job.result} label={t("Result")} /> : <p class="faint">{t("This server shows arguments to admins only.")}</p>}
            </Card>
          )}
          <LogCard job={job} ended={ENDED.has(job.state)} />
        </div>
        <div class="stack">
          <Card title={t("What happened")}>
            <Timeline job={job} />
          </Card>
          <Card title={t("Details")}>
            <Facts job={job} />
          </Card>
        </div>
      </div>
    </>
  );
}

function Facts({ job }: { job: Job }) {
  const rows: [string, preact.ComponentChildren][] = [
    [t("Queue"), <a href={to.queue(job.queue)}>{job.queue}</a>],
    [t("Key"), job.key === null ? "–" : <a class="mono" href={to.keys(job.queue, job.key)}>{job.key}</a>],
    [t("Attempt"), job.maxAttempts ? t("{n} of {all}", { n: job.attempt, all: job.maxAttempts }) : String(job.attempt)],
    [t("Priority"), String(job.priority)],
    [t("Partition"), count(job.partition)],
    ...(job.schedule ? [[t("Schedule"), <a href={to.schedules()}>{job.schedule}</a>] as [string, preact.ComponentChildren]] : []),
    [t("Enqueued"), job.createdAt ? moment(job.createdAt) : "–"],
    ...(job.dueAt ? [[t("Due"), moment(job.dueAt)] as [string, preact.ComponentChildren]] : []),
    ...(job.expiresAt ? [[t("Expires"), moment(job.expiresAt)] as [string, preact.ComponentChildren]] : []),
    [job.state === "active" ? t("Running for") : t("Took"), <RunTime job={job} />],
    ...(job.timeout === null ? [] : [[t("Timeout"), duration(job.timeout * 1000)] as [string, preact.ComponentChildren]]),
    ...(job.worker ? [[t("Worker"), <a class="mono" href={to.workers()}>{job.worker}</a>] as [string, preact.ComponentChildren]] : []),
  ];
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function WhyCard({ job }: { job: Job }) {
  const asked = useAsk<Why>(at.job(job.queue, job.id, "/why"), { every: 3000, always: true });
  const running = job.state === "active";
  return (
    <Card title={running ? t("What it is doing") : t("Why is it not running?")}>
      {!asked.data ? (
        asked.error ? <Failed error={asked.error} again={asked.again} /> : <Loading rows={2} />
      ) : (
        <ol class="reasons">
          {asked.data.reasons.map((one) => (
            <li key={one.code}>
              <span class={`reason-icon ${one.code}`}>
                <Icon name={icons[one.code] ?? "waiting"} />
              </span>
              <div>
                <p>{reason(one, job.queue)}</p>
                <Remedy code={one.code} job={job} then={asked.again} />
                <small class="faint">
                  {one.at && <Due at={one.at} />}
                  {one.jobId && one.jobId !== job.id && (
                    <>
                      {one.at && " · "}
                      <a href={to.job(job.queue, one.jobId)}>{t("the job it waits for")}</a>
                    </>
                  )}
                </small>
              </div>
            </li>
          ))}
        </ol>
      )}
    </Card>
  );
}

/** The action beside the reason, where there is one. */
function Remedy({ code, job, then }: { code: Reason["code"]; job: Job; then: () => Promise<void> }) {
  if (!operator.value) return null;
  if (code === "paused") {
    return <Button small icon="play" onClick={async () => { if (await doing(() => post(at.queue(job.queue, "/resume")), t("{queue} runs again", { queue: job.queue }))) await then(); }}>{t("Resume {queue}", { queue: job.queue })}</Button>;
  }
  if (job.state === "delayed" && (code === "due" || code === "retry")) {
    return <Button small icon="promote" onClick={async () => { if (await doing(() => post(at.job(job.queue, job.id, "/promote")), t("It runs now"))) await then(); }}>{t("Run now")}</Button>;
  }
  if (code === "halted" && job.key !== null) return <a class="button small" href={to.keys(job.queue, job.key)}>{t("Open the key")}</a>;
  return null;
}

function Due({ at: moment }: { at: string }) {
  const left = Date.parse(moment) - clock.value;
  return left > 0 ? <>{t("in {time}", { time: duration(left) })}</> : <Ago at={moment} />;
}

function Actions({ job, then }: { job: Job; then: () => Promise<void> }) {
  const [editing, setEditing] = useState(false);
  const act = (verb: string, well: string) => async () => {
    if (await doing(() => post(at.job(job.queue, job.id, `/${verb}`)), well)) await then();
  };
  const again = job.state === "failed" || job.state === "cancelled";
  return (
    <>
      {admin.value && job.state !== "active" && (
        <Button
          kind="danger"
          icon="trash"
          onClick={async () => {
            const here = to.job(job.queue, job.id);
            const removes = await inAMoment(`${job.queue}/${job.id}`, t("The job was removed"), () => remove(at.job(job.queue, job.id)), () => go(here));
            if (removes) go(to.jobs(job.queue, job.state));
          }}
        >
          {t("Remove")}
        </Button>
      )}
      {!ENDED.has(job.state) && (
        <Button
          kind="danger"
          icon="cancel"
          onClick={() =>
            confirm({
              title: t("Cancel this job?"),
              text: job.state === "active" ? t("It is running: a coroutine is stopped, a plain function runs to its end and its outcome is refused.") : t("It does not run. It can be retried later."),
              action: t("Cancel the job"),
              dismiss: t("Keep the job"),
              danger: true,
              submit: async () => {
                await post(at.job(job.queue, job.id, "/cancel"));
                await then();
              },
            })
          }
        >
          {t("Cancel")}
        </Button>
      )}
      {(job.state === "waiting" || job.state === "delayed") && <JobChanges job={job} then={then} />}
      {job.state === "delayed" && <Button kind="primary" icon="promote" onClick={act("promote", t("It runs as soon as a worker is free"))}>{t("Run now")}</Button>}
      {again && <Button icon="edit" onClick={() => setEditing(true)}>{t("Edit and retry")}</Button>}
      {again && <Button kind="primary" icon="retry" onClick={act("retry", t("It was enqueued again"))}>{t("Retry")}</Button>}
      {editing && <EditRetry job={job} then={then} onClose={() => setEditing(false)} />}
    </>
  );
}

function EditRetry({ job, then, onClose }: { job: Job; then: () => Promise<void>; onClose: () => void }) {
  const [text, setText] = useState(JSON.stringify(job.payload ?? {}, null, 2));
  return (
    <FormDialog
      title={t("Retry with other arguments")}
      action={t("Retry")}
      wide
      onClose={onClose}
      submit={async () => {
        await post(at.job(job.queue, job.id, "/retry"), { payload: asObject(text) });
        say(t("It was enqueued again"));
        await then();
      }}
    >
      <Area label={t("Arguments (JSON)")} value={text} onInput={setText} rows={12} />
    </FormDialog>
  );
}

