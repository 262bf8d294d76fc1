// The timeline of a job: from when it was asked for to how it ended, each attempt with who ran it and for how long.
import type { ComponentChildren } from "preact";
import { at } from "../api";
import { useAsk } from "../ask";
import { duration, moment } from "../format";
import { Ago } from "../parts/basics";
import { Loading } from "../parts/blank";
import { Icon, type IconName } from "../parts/icon";
import { Traceback } from "../parts/traceback";
import { t } from "../words";
import type { Attempt, History, Job } from "../wire";
import { CompareAttempts } from "./job-compare";
import { neverRan } from "./job-waits";
import { Waterfall } from "./job-waterfall";

export function Timeline({ job }: { job: Job }) {
  const asked = useAsk<History>(at.job(job.queue, job.id, "/history"), { every: 3000 });
  if (!asked.data) return <Loading rows={3} />;
  const { attempts, worker, crashes } = asked.data;
  return (
    <>
    <Waterfall job={job} attempts={attempts} />
    <ol class="timeline">
      <Point icon="plus" title={job.schedule ? t("Enqueued by the schedule {name}", { name: job.schedule }) : t("Enqueued")} when={job.createdAt} />
      {attempts.map((one, n) => (
        <Run key={n} one={one} last={n === attempts.length - 1} job={job} />
      ))}
      {crashes > 0 && <Point icon="failed" tone="bad" title={t("a worker died of it {n} time|a worker died of it {n} times", { n: crashes })} />}
      {job.state === "waiting" && <Point icon="waiting" tone="waiting" title={t("Waiting")} />}
      {job.state === "delayed" && <Point icon="delayed" tone="delayed" title={job.suspended ? t("Sleeps") : job.attempt > 1 ? t("Waits for attempt {n}", { n: job.attempt }) : job.dueAt ? t("Waits for its time") : t("Waits for other jobs")} when={job.dueAt} />}
      {job.state === "active" && <Point icon="active" tone="active" title={t("Attempt {n} is running", { n: job.attempt })} note={worker} when={job.startedAt} />}
      {job.state === "cancelled" && <Point icon="cancel" title={t("Cancelled")} when={job.finishedAt} />}
    </ol>
    <CompareAttempts attempts={attempts} />
    </>
  );
}

function Run({ one, last, job }: { one: Attempt; last: boolean; job: Job }) {
  if (job.state === "cancelled" && last && !one.at) return null;
  const well = last && job.state === "completed";
  if (neverRan(job, one)) return <Point icon="cancel" title={t("Not run: another job of its flow failed")} when={job.finishedAt} />;
  return (
    <Point
      icon={well ? "done" : "failed"}
      tone={well ? "completed" : "failed"}
      title={well ? t("Attempt {n} completed", { n: one.attempt }) : t("Attempt {n} failed", { n: one.attempt })}
      when={one.at}
      note={`${duration(one.durationMs)} · ${one.worker}`}
    >
      {one.error && <p class="timeline-error">{one.error}</p>}
      {one.stacktrace && (
        <details class="attempt-trace">
          <summary>{t("Traceback of attempt {n}", { n: one.attempt })}</summary>
          <Traceback text={one.stacktrace} label={t("Traceback of attempt {n}", { n: one.attempt })} />
        </details>
      )}
    </Point>
  );
}

function Point({ icon, title, when, note, tone = "", children }: { icon: IconName; title: string; when?: string | null; note?: string | null; tone?: string; children?: ComponentChildren }) {
  return (
    <li class={tone}>
      <span class="timeline-dot">
        <Icon name={icon} size={13} />
      </span>
      <div class="timeline-body">
        <div class="timeline-head">
          <b>{title}</b>
          {when && (
            <small class="faint" title={moment(when)}>
              <Ago at={when} />
            </small>
          )}
        </div>
        {note && <small class="faint cut">{note}</small>}
        {children}
      </div>
    </li>
  );
}
