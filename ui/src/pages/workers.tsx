// Workers: the processes as a table, what each runs and for how long, the partitions that each reads, and those lost within a day.
import { at, post } from "../api";
import { useAsk } from "../ask";
import { bytes, clock, count, duration, moment, rate } from "../format";
import { Ago, Bar, Button, Card, Head, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { confirm } from "../parts/dialog";
import { workersOf } from "../parts/own";
import { type SortColumn, useSort } from "../parts/sort";
import { to } from "../route";
import { operator } from "../session";
import { t } from "../words";
import type { LostWorker, Running, RunningJob, Worker, Workers as Told } from "../wire";

export function Workers() {
  const asked = useAsk<Told>("api/workers", { every: 2000, always: true });
  const running = useAsk<Running>("api/running", { every: 1500, always: true });
  const jobs = running.data?.jobs ?? [];
  return (
    <>
      <Head title={t("Workers")} under={asked.data && t("{n} live process|{n} live processes", { n: workersOf(asked.data).length })} />
      <Shown answer={asked} rows={6}>
        {(told) => (
          <>
            <Processes told={told} />
            <RunningJobs jobs={jobs} total={running.data?.total ?? 0} then={running.again} />
            <Partitions workers={workersOf(told)} />
          </>
        )}
      </Shown>
    </>
  );
}

const slotsOf = (one: Worker) => Object.values(one.queues).reduce((sum, each) => sum + each.concurrency, 0);
const busyOf = (one: Worker) => Object.values(one.queues).reduce((sum, each) => sum + each.busy, 0);

type Row = Worker | LostWorker;
const isLost = (one: Row): one is LostWorker => "lostAt" in one;

function stateRank(one: Row): number {
  if (isLost(one)) return 3;
  return one.blocked ? 0 : Object.values(one.queues).some((each) => each.leaving) ? 1 : 2;
}

function uptime(one: Row): number {
  if (!one.startedAt) return -1;
  return (isLost(one) ? Date.parse(one.lostAt) : clock.peek()) - Date.parse(one.startedAt);
}

const COLUMNS: SortColumn<Row>[] = [
  { name: "id", title: "Worker", of: (one) => one.id },
  { name: "state", title: "State", of: stateRank },
  { name: "host", title: "Host", of: (one) => `${one.host} ${String(one.pid).padStart(9)}` },
  { name: "up", title: "Up for", of: uptime, num: true },
  { name: "version", title: "Version", of: (one) => one.version },
  { name: "memory", title: "Memory", of: (one) => (isLost(one) ? -1 : (one.memoryBytes ?? -1)), num: true },
  { name: "cpu", title: "CPU", of: (one) => (isLost(one) ? -1 : (one.cpuPercent ?? -1)), num: true },
  { name: "busy", title: "Busy slots", of: (one) => (isLost(one) ? -1 : busyOf(one) / Math.max(slotsOf(one), 1)) },
  { name: "queues", title: "Queues", wide: true },
];

function Processes({ told }: { told: Told }) {
  const workers = workersOf(told);
  const { sorted, heads } = useSort<Row>(COLUMNS, [...workers, ...told.lost], { by: "state", down: false });
  if (workers.length + told.lost.length === 0) {
    return (
      <Card>
        <Empty icon="workers" title={t("No worker is alive")}>
          <p>{t("Start one; jobs wait until then:")}</p>
          <code>qbull worker MODULE:APP</code>
        </Empty>
      </Card>
    );
  }
  return (
    <Card flush>
      <div class="scroll">
        <table class="dense workers">
          <thead>
            <tr>{heads}</tr>
          </thead>
          <tbody>{sorted.map((one) => (isLost(one) ? <Lost key={one.id + one.lostAt} one={one} /> : <Process key={one.id} one={one} />))}</tbody>
        </table>
      </div>
    </Card>
  );
}

function Process({ one }: { one: Worker }) {
  const [busy, slots] = [busyOf(one), slotsOf(one)];
  const leaving = Object.values(one.queues).some((each) => each.leaving);
  const said = t("{n} of {all} slots are busy", { n: busy, all: slots });
  return (
    <tr data-row tabIndex={-1}>
      <td class="mono strong nowrap">{one.id}</td>
      <td data-label={t("State")}>
        {one.blocked ? (
          <span title={t("Its event loop is blocked by {tasks} since {at}. Use a plain function or cpu=True for such work.", { tasks: one.blocked.tasks.join(" / ") || t("a task"), at: moment(one.blocked.since) })}>
            <Tag tone="bad">{t("blocked")}</Tag> <small>{one.blocked.tasks.join(" / ")}</small>
          </span>
        ) : leaving ? (
          <Tag tone="warn">{t("stopping")}</Tag>
        ) : (
          <Tag tone="good">{t("live")}</Tag>
        )}
      </td>
      <td data-label={t("Host")} class="nowrap">{one.host} <small class="faint">pid {one.pid}</small> <Offer labels={one.labels} resources={one.resources} /></td>
      <td class="num nowrap" data-label={t("Up for")} title={one.startedAt ? moment(one.startedAt) : undefined}>{one.startedAt ? duration(Math.max(0, clock.value - Date.parse(one.startedAt))) : "–"}</td>
      <td data-label={t("Version")}>{one.version || "–"}</td>
      <td class="num nowrap" data-label={t("Memory")} title={t("Of the process and its child processes")}>{one.memoryBytes === null ? "–" : bytes(one.memoryBytes)}</td>
      <td class="num nowrap" data-label={t("CPU")} title={t("Of one core, since the last heartbeat but one")}>{one.cpuPercent === null ? "–" : `${rate(one.cpuPercent)} %`}</td>
      <td data-label={t("Busy slots")} class="busy-slots" title={said}>
        <Bar value={busy} of={slots} label={said} tone="good" />
        <small class="faint nowrap">{count(busy)} / {count(slots)}</small>
      </td>
      <td class="wide-only" data-label={t("Queues")}><QueueNames names={Object.keys(one.queues)} /></td>
    </tr>
  );
}

function Lost({ one }: { one: LostWorker }) {
  return (
    <tr data-row tabIndex={-1} class="lost">
      <td class="mono strong nowrap">{one.id}</td>
      <td data-label={t("State")}><Tag tone="bad">{t("lost")}</Tag> <small><Ago at={one.lostAt} /></small></td>
      <td data-label={t("Host")} class="nowrap">{one.host} <small class="faint">pid {one.pid}</small></td>
      <td class="num nowrap" data-label={t("Up for")}>{one.startedAt ? duration(Date.parse(one.lostAt) - Date.parse(one.startedAt)) : "–"}</td>
      <td data-label={t("Version")}>{one.version || "–"}</td>
      <td class="faint num">–</td>
      <td class="faint num">–</td>
      <td class="faint">–</td>
      <td class="wide-only" data-label={t("Queues")}><QueueNames names={one.queues} /></td>
    </tr>
  );
}

/** The labels and resources of a worker. */
function Offer({ labels, resources }: { labels: Record<string, string>; resources: Record<string, number> }) {
  const said = [...Object.entries(labels), ...Object.entries(resources).map(([name, tokens]) => [`${t("resource")} ${name}`, tokens])];
  return <small title={t("Labels and resources")}>{said.map(([name, value]) => `${name}=${value}`).join(", ")}</small>;
}

function QueueNames({ names }: { names: string[] }) {
  const shown = names.slice(0, 4);
  return (
    <span class="queue-names" title={names.join(", ")}>
      {shown.map((name, n) => (
        <span key={name}>{n > 0 && ", "}<a href={to.queue(name)}>{name}</a></span>
      ))}
      {names.length > 4 && <span class="faint"> {t("and {n} more", { n: names.length - 4 })}</span>}
    </span>
  );
}

/** The server sorts them, the longest first: that is the one somebody looks for. */
function RunningJobs({ jobs, total, then }: { jobs: RunningJob[]; total: number; then: () => Promise<void> }) {
  const cancel = (job: RunningJob) =>
    confirm({
      title: t("Cancel this job?"),
      text: `${job.queue}/${job.task} ${job.key ?? ""}`,
      action: t("Cancel the job"),
      danger: true,
      submit: async () => {
        await post(at.job(job.queue, job.id, "/cancel"));
        await then();
      },
    });
  return (
    <Card title={t("Running now")} aside={total > jobs.length ? <span class="faint">{t("the longest {n} of {all} are shown", { n: jobs.length, all: count(total) })}</span> : undefined} flush>
      {jobs.length === 0 ? (
        <Empty icon="active" title={t("Nothing runs at the moment")} />
      ) : (
        <div class="scroll">
          <table class="dense">
            <thead>
              <tr>
                <th>{t("Job")}</th>
                <th>{t("Key")}</th>
                <th>{t("Worker")}</th>
                <th class="num">{t("Running for")}</th>
                <th class="num">{t("Attempt")}</th>
                <th class="num">{t("Progress")}</th>
                {operator.value && <th><span class="unseen">{t("Actions")}</span></th>}
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.queue + job.id} data-row tabIndex={-1}>
                  <td><a class="strong" href={to.job(job.queue, job.id)}>{job.queue}/{job.task}</a></td>
                  <td data-label={t("Key")} class="mono">{job.key ?? <span class="faint">–</span>}</td>
                  <td data-label={t("Worker")} class="mono nowrap">{job.worker}</td>
                  <td class="num nowrap" data-label={t("Running for")}>{job.startedAt ? duration(Math.max(0, clock.value - Date.parse(job.startedAt))) : "–"}</td>
                  <td class="num" data-label={t("Attempt")}>{job.attempt}</td>
                  <td class="num" data-label={t("Progress")}>{job.progress === null ? <span class="faint">–</span> : `${Math.round(job.progress)} %`}</td>
                  {operator.value && (
                    <td class="num">
                      <Button small kind="ghost" icon="cancel" label={t("Cancel {id}", { id: `${job.queue}/${job.task}` })} onClick={() => cancel(job)} />
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

/** A row for each worker, a column for each partition. */
function Partitions({ workers }: { workers: Worker[] }) {
  const names = [...new Set(workers.flatMap((one) => Object.keys(one.queues)))].sort();
  if (names.length === 0) return null;
  return (
    <Card title={t("Partitions")} flush>
      <div class="scroll">
        <table class="dense matrix">
          <thead>
            <tr>
              <th>{t("Worker")}</th>
              {names.map((name) => (
                <th key={name}><a href={to.queue(name)}>{name}</a></th>
              ))}
            </tr>
          </thead>
          <tbody>
            {workers.map((one) => (
              <tr key={one.id}>
                <td class="mono nowrap">{one.id}</td>
                {names.map((name) => {
                  const serving = one.queues[name];
                  return (
                    <td key={name} data-label={name} title={serving && `${serving.sharing}`}>
                      {!serving ? <span class="faint">–</span> : serving.partitions.length ? ranges(serving.partitions) : <span class="faint">{t("none")}</span>}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

/** 0–3, 7 */
function ranges(numbers: number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < numbers.length; at++) {
    const from = numbers[at]!;
    while (at + 1 < numbers.length && numbers[at + 1] === numbers[at]! + 1) at++;
    parts.push(from === numbers[at] ? String(from) : `${from}–${numbers[at]}`);
  }
  return parts.join(", ");
}
