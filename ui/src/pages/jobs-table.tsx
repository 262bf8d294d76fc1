// A table of jobs; what it says of each depends on their state.
import type { ComponentChildren } from "preact";
import { duration } from "../format";
import { Ago, Bar, type State, Tag } from "../parts/basics";
import { held } from "../parts/toast";
import { to } from "../route";
import { t, type Text } from "../words";
import type { Job } from "../wire";

interface Column {
  head: Text;
  cell: (job: Job) => ComponentChildren;
  num?: boolean;
  grow?: boolean;
}

const when = (head: Text, of: (job: Job) => string | null): Column => ({ head, cell: (job) => <Ago at={of(job)} />, num: true });
const attempt: Column = {
  head: "Attempt",
  num: true,
  cell: (job) => (job.maxAttempts && job.attempt > 1 ? <Tag tone={job.state === "failed" ? "bad" : "warn"}>{`${job.attempt} / ${job.maxAttempts}`}</Tag> : <span class="faint">{`${job.attempt}${job.maxAttempts ? ` / ${job.maxAttempts}` : ""}`}</span>),
};
const took: Column = { head: "Took", num: true, cell: (job) => (job.durationMs === null ? <span class="faint">–</span> : duration(job.durationMs)) };
const error: Column = { head: "Error", grow: true, cell: (job) => <span class="cut error-text" title={job.error ?? ""}>{job.error}</span> };
const payload: Column = { head: "Arguments", grow: true, cell: (job) => <span class="cut mono faint">{job.payload == null ? "" : JSON.stringify(job.payload)}</span> };
const progress: Column = {
  head: "Progress",
  cell: (job) => (job.progress === null ? <span class="faint">–</span> : <Bar value={job.progress} of={100} label={t("Progress")} tone="good" />),
};
const priority: Column = { head: "Priority", num: true, cell: (job) => (job.priority === 5 ? <span class="faint">5</span> : job.priority) };

const columns: Record<State, Column[]> = {
  waiting: [payload, priority, attempt, when("Enqueued", (job) => job.createdAt)],
  active: [payload, progress, attempt, when("Started", (job) => job.startedAt)],
  delayed: [payload, priority, attempt, when("Due", (job) => job.dueAt)],
  completed: [payload, attempt, took, when("Finished", (job) => job.finishedAt)],
  failed: [error, attempt, took, when("Finished", (job) => job.finishedAt)],
  cancelled: [error, attempt, when("Finished", (job) => job.finishedAt)],
};

interface TableProps {
  jobs: Job[];
  state: State;
  chosen?: ReadonlySet<string>;
  choose?: (ids: ReadonlySet<string>) => void;
}

export function JobTable({ jobs: all, state, chosen = new Set(), choose }: TableProps) {
  const jobs = all.filter((job) => !held.value.has(`${job.queue}/${job.id}`));
  const some = chosen.size > 0;
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    choose?.(next);
  };
  const keyed = jobs.some((job) => job.key !== null);
  return (
    <div class="scroll">
      <table class="jobs">
        <thead>
          <tr>
            {choose && (
              <th class="pick">
                <input
                  type="checkbox"
                  aria-label={t("Choose all that are shown")}
                  checked={some && jobs.every((job) => chosen.has(job.id))}
                  indeterminate={some && !jobs.every((job) => chosen.has(job.id))}
                  onChange={() => choose(jobs.every((job) => chosen.has(job.id)) ? new Set() : new Set(jobs.map((job) => job.id)))}
                />
              </th>
            )}
            <th>{t("Job")}</th>
            {keyed && <th>{t("Key")}</th>}
            {columns[state].map((one) => (
              <th key={one.head} class={one.num ? "num" : one.grow ? "grow" : ""}>{t(one.head)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.id} data-row tabIndex={-1} class={chosen.has(job.id) ? "chosen" : ""}>
              {choose && (
                <td class="pick">
                  <input type="checkbox" aria-label={t("Choose {id}", { id: job.id })} checked={chosen.has(job.id)} onChange={() => toggle(job.id)} />
                </td>
              )}
              <td class="job-name">
                <a href={to.job(job.queue, job.id)}>
                  <span class="strong">{job.task}</span>
                  <span class="mono faint cut">{job.id}</span>
                </a>
              </td>
              {keyed && (
                <td data-label={t("Key")}>{job.key === null ? <span class="faint">–</span> : <a class="mono cut key-cell" href={to.keys(job.queue, job.key)}>{job.key}</a>}</td>
              )}
              {columns[state].map((one) => (
                <td key={one.head} class={one.num ? "num" : one.grow ? "grow" : ""} data-label={one.grow ? undefined : t(one.head)}>{one.cell(job)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
