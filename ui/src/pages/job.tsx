// One job: how it went so far, what it was given and gave back, why it is not running, and what can be done with it.
import { useEffect, useState } from "preact/hooks";
import { at, post, remove } from "../api";
import { useAsk } from "../ask";
import { count, duration, moment } from "../format";
import { watch, watched } from "../live";
import { ArgumentsField } from "../parts/arguments";
import { Bar, Button, Card, Copy, Head, StateBadge } from "../parts/basics";
import { Failed, Loading } from "../parts/blank";
import { confirm, FormDialog } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { Json } from "../parts/json";
import { doing, inAMoment, say } from "../parts/toast";
import { Traceback } from "../parts/traceback";
import { go, place, to } from "../route";
import { admin, me, operator } from "../session";
import { t } from "../words";
import type { Job } from "../wire";
import { JobChanges } from "./job-change";
import { LogCard } from "./job-log";
import { StackCard } from "./job-stack";
import { Timeline } from "./job-timeline";
import { RunTime } from "./job-usual";
import { JobFlow } from "./job-flow";
import { WhyCard } from "./job-why";
import { DurableJob } from "./job-steps";
import { asObject } from "./queue-enqueue";

const ENDED = new Set(["completed", "failed", "cancelled"]);
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
      <ArgumentsField queue={job.queue} task={job.task} value={text} onInput={setText} rows={12} />
    </FormDialog>
  );
}

