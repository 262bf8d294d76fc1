// A dense table of jobs of any queue and state. Columns can be chosen and sorted; the header stays in sight.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { duration, shortId, withShortIds } from "../format";
import { Ago, Copy, stateIcon, type State } from "../parts/basics";
import { Icon } from "../parts/icon";
import { held } from "../parts/toast";
import { to } from "../route";
import { t, type Text } from "../words";
import type { Job } from "../wire";

export interface Column {
  name: string;
  head: Text;
  cell: (job: Job) => ComponentChildren;
  /** What rows are sorted by. */
  by: (job: Job) => string | number;
  num?: boolean;
  grow?: boolean;
}

export const nameOf = (job: Job): string => `${job.queue}/${job.id}`;

export function whenOf(job: Job): string {
  return job.finishedAt ?? job.startedAt ?? job.createdAt;
}

function details(job: Job): ComponentChildren {
  const text = job.error ?? (job.payload == null ? "" : JSON.stringify(job.payload));
  return <span class={`cut ${job.error ? "error-text" : "mono faint"}`} title={text}>{withShortIds(text)}</span>;
}

export const COLUMNS: Column[] = [
  { name: "state", head: "State", by: (job) => job.state, cell: (job) => <span class={`dot-state state-${job.state}`} title={t(job.state as Text)}><Icon name={stateIcon(job.state as State)} size={13} /><span>{t(job.state as Text)}</span></span> },
  { name: "queue", head: "Queue", by: (job) => job.queue, cell: (job) => <a class="cut narrow" href={to.queue(job.queue)}>{job.queue}</a> },
  { name: "id", head: "Id", by: (job) => job.id, cell: (job) => <span class="id-cell"><a class="mono" href={to.job(job.queue, job.id)} title={job.id} tabIndex={-1}>{shortId(job.id)}</a><Copy text={job.id} label={t("Copy the whole id")} /></span> },
  { name: "key", head: "Key", by: (job) => job.key ?? "", cell: (job) => (job.key === null ? <span class="faint">–</span> : <a class="mono cut key-cell" href={to.keys(job.queue, job.key)}>{job.key}</a>) },
  { name: "details", head: "Error or arguments", grow: true, by: (job) => job.error ?? JSON.stringify(job.payload ?? ""), cell: details },
  { name: "payload", head: "Arguments", grow: true, by: (job) => JSON.stringify(job.payload ?? ""), cell: (job) => <span class="cut mono faint">{job.payload == null ? "" : JSON.stringify(job.payload)}</span> },
  { name: "error", head: "Error", grow: true, by: (job) => job.error ?? "", cell: (job) => <span class="cut error-text" title={job.error ?? ""}>{withShortIds(job.error ?? "")}</span> },
  { name: "attempt", head: "Attempt", num: true, by: (job) => job.attempt, cell: (job) => <span class={job.attempt > 1 ? "warn-text" : "faint"}>{`${job.attempt}${job.maxAttempts ? `/${job.maxAttempts}` : ""}`}</span> },
  { name: "took", head: "Took", num: true, by: (job) => job.durationMs ?? -1, cell: (job) => (job.durationMs === null ? <span class="faint">–</span> : duration(job.durationMs)) },
  { name: "priority", head: "Priority", num: true, by: (job) => job.priority, cell: (job) => <span class={job.priority === 5 ? "faint" : ""}>{job.priority}</span> },
  { name: "worker", head: "Worker", by: (job) => job.worker ?? "", cell: (job) => <span class="mono cut narrow faint">{job.worker ?? "–"}</span> },
  { name: "created", head: "Enqueued", num: true, by: (job) => job.createdAt, cell: (job) => <Ago at={job.createdAt} /> },
  { name: "when", head: "When", num: true, by: whenOf, cell: (job) => <Ago at={job.state === "delayed" ? (job.dueAt ?? job.createdAt) : whenOf(job)} /> },
];
const DEFAULT = ["state", "queue", "id", "key", "details", "attempt", "took", "when"];

export function chosenColumns(): string[] {
  try {
    const kept = JSON.parse(localStorage.getItem("qbull.columns") ?? "null") as string[] | null;
    return kept?.length ? kept : DEFAULT;
  } catch {
    return DEFAULT;
  }
}

export function ColumnMenu({ shown, setShown }: { shown: string[]; setShown: (names: string[]) => void }) {
  const toggle = (name: string) => {
    const next = shown.includes(name) ? shown.filter((one) => one !== name) : COLUMNS.map((one) => one.name).filter((one) => one === name || shown.includes(one));
    localStorage.setItem("qbull.columns", JSON.stringify(next));
    setShown(next);
  };
  return (
    <details class="menu right" onKeyDown={(event) => event.key === "Escape" && (event.currentTarget.open = false)}>
      <summary class="button small ghost"><Icon name="settings" size={14} />{t("Columns")}</summary>
      <div class="menu-in">
        <ul>
          {COLUMNS.map((one) => (
            <li key={one.name}>
              <label><input type="checkbox" checked={shown.includes(one.name)} onChange={() => toggle(one.name)} /> {t(one.head)}</label>
            </li>
          ))}
        </ul>
      </div>
    </details>
  );
}

interface TableProps {
  jobs: Job[];
  shown: string[];
  chosen?: ReadonlySet<string>;
  choose?: (names: ReadonlySet<string>) => void;
}

export function JobTable({ jobs: all, shown, chosen = new Set(), choose }: TableProps) {
  const [sort, setSort] = useState<{ name: string; down: boolean } | null>(null);
  const keyed = all.some((job) => job.key !== null);
  const columns = COLUMNS.filter((one) => shown.includes(one.name) && (keyed || one.name !== "key"));
  const by = columns.find((one) => one.name === sort?.name);
  const jobs = all.filter((job) => !held.value.has(nameOf(job)));
  if (by) jobs.sort((a, b) => (by.by(a) < by.by(b) ? -1 : by.by(a) > by.by(b) ? 1 : 0) * (sort?.down ? -1 : 1));
  const whole = jobs.length > 0 && jobs.every((job) => chosen.has(nameOf(job)));
  const toggle = (name: string) => {
    const next = new Set(chosen);
    if (!next.delete(name)) next.add(name);
    choose?.(next);
  };
  const press = (column: Column) => setSort((before) => (before?.name !== column.name ? { name: column.name, down: column.num ?? false } : before.down === (column.num ?? false) ? { name: column.name, down: !before.down } : null));
  return (
    <div class="scroll dense">
      <table class="jobs">
        <thead>
          <tr>
            {choose && (
              <th class="pick">
                <input type="checkbox" aria-label={t("Select all shown")} checked={whole} indeterminate={chosen.size > 0 && !whole} onChange={() => choose(whole ? new Set() : new Set(jobs.map(nameOf)))} />
              </th>
            )}
            <th>{t("Task")}</th>
            {columns.map((one) => (
              <th key={one.name} class={one.num ? "num" : one.grow ? "grow" : ""} aria-sort={sort?.name === one.name ? (sort.down ? "descending" : "ascending") : undefined}>
                <button type="button" class="sort" onClick={() => press(one)}>
                  {t(one.head)}
                  {sort?.name === one.name && <Icon name={sort.down ? "down" : "promote"} size={11} />}
                </button>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => {
            const name = nameOf(job);
            return (
              <tr key={name} data-row tabIndex={-1} class={chosen.has(name) ? "chosen" : ""}>
                {choose && (
                  <td class="pick">
                    <input type="checkbox" aria-label={t("Select {id}", { id: job.id })} checked={chosen.has(name)} onChange={() => toggle(name)} />
                  </td>
                )}
                <td class="job-name"><a class="strong cut" href={to.job(job.queue, job.id)}>{job.task}</a></td>
                {columns.map((one) => (
                  <td key={one.name} class={one.num ? "num" : one.grow ? "grow" : ""} data-label={one.grow ? undefined : t(one.head)}>{one.cell(job)}</td>
                ))}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
