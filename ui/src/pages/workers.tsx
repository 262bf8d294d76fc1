// Workers: the live processes, which partitions each reads, and what each runs at the moment.
import { useAsk } from "../ask";
import { count, moment } from "../format";
import { Bar, Card, Head, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { workersOf } from "../parts/own";
import { to } from "../route";
import { t } from "../words";
import type { Running, RunningJob, Worker, Workers as Told } from "../wire";

export function Workers() {
  const asked = useAsk<Told>("api/workers", { every: 2000, always: true });
  const running = useAsk<Running>("api/running", { every: 1500, always: true });
  const jobs = running.data?.jobs ?? [];
  return (
    <>
      <Head title={t("Workers")} under={asked.data && t("{n} live process|{n} live processes", { n: workersOf(asked.data).length })} />
      <Shown answer={asked} rows={6}>
        {(told) =>
          workersOf(told).length === 0 ? (
            <Card>
              <Empty icon="workers" title={t("No worker is alive")}>
                <p>{t("Start one; jobs wait until then:")}</p>
                <code>qbull worker MODULE:APP</code>
              </Empty>
            </Card>
          ) : (
            <div class="worker-cards">
              {workersOf(told).map((one) => (
                <WorkerCard key={one.id} one={one} jobs={jobs.filter((job) => job.worker === one.id)} />
              ))}
            </div>
          )
        }
      </Shown>
      {running.data?.more && <p class="faint">{t("only the first {n} running jobs are shown", { n: jobs.length })}</p>}
    </>
  );
}

function WorkerCard({ one, jobs }: { one: Worker; jobs: RunningJob[] }) {
  const slots = Object.values(one.queues).reduce((sum, each) => sum + each.concurrency, 0);
  const leaving = Object.values(one.queues).some((each) => each.leaving);
  return (
    <article class="card worker" data-row tabIndex={-1}>
      <div class="worker-head">
        <h2 class="mono cut" title={one.id}>{one.id}</h2>
        {leaving && <Tag tone="warn">{t("stopping")}</Tag>}
        {one.blocked && <Tag tone="bad">{t("blocked")}</Tag>}
        <span class="push faint">
          {one.host} · pid {one.pid}
        </span>
      </div>
      {one.blocked && (
        <p class="worker-blocked">
          {t("Its event loop is blocked by {tasks} since {at}. Use a plain function or cpu=True for such work.", { tasks: one.blocked.tasks.join(" / ") || t("a task"), at: moment(one.blocked.since) })}
        </p>
      )}
      <div class="worker-load">
        <Bar value={jobs.length} of={slots} label={t("{n} of {all} slots are busy", { n: jobs.length, all: slots })} tone="good" />
        <small class="faint">{t("{n} of {all} slots are busy", { n: jobs.length, all: slots })}</small>
      </div>
      <table class="worker-queues">
        <thead>
          <tr>
            <th>{t("Queue")}</th>
            <th class="num">{t("Slots")}</th>
            <th>{t("Partitions")}</th>
          </tr>
        </thead>
        <tbody>
          {Object.entries(one.queues).map(([name, serving]) => (
            <tr key={name}>
              <td><a href={to.queue(name)}>{name}</a></td>
              <td class="num">{count(serving.concurrency)}</td>
              <td>
                <span class="parts">{serving.partitions.length ? ranges(serving.partitions) : <span class="faint">{t("none")}</span>}</span> <small class="faint">{serving.sharing}</small>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <div class="worker-jobs">
        {jobs.length === 0 ? (
          <p class="faint">{t("It runs nothing at the moment.")}</p>
        ) : (
          <ul>
            {jobs.slice(0, 8).map((job) => (
              <li key={job.queue + job.id}>
                <a class="cut" href={to.job(job.queue, job.id)}>
                  {job.queue}/{job.task}
                </a>
                <span class="mono faint cut">{job.key ?? job.id}</span>
              </li>
            ))}
            {jobs.length > 8 && <li class="faint">{t("and {n} more", { n: jobs.length - 8 })}</li>}
          </ul>
        )}
      </div>
    </article>
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
