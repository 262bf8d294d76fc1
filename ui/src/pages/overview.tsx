// The overview: does it work, how much is done, what fails, what waits for how long.
import { useMemo, useState } from "preact/hooks";
import { useAsk } from "../ask";
import { clock, count, duration, moment, rate, short } from "../format";
import { finished, queues, type LiveStats } from "../live";
import { Ago, Card, CountLink, Figure, Head, StateBadge, Tag } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { Chart, lived } from "../parts/chart";
import { Choice } from "../parts/field";
import { Icon } from "../parts/icon";
import { inOrder, workersOf } from "../parts/own";
import { to } from "../route";
import { problem } from "../said";
import { type Text, t } from "../words";
import type { Health, HealthProblem, Overview as Told, Verdict as Judged, Workers } from "../wire";

type Span = "60" | "360" | "1440";

export function Overview() {
  const [span, setSpan] = useState<Span>("60");
  const told = useAsk<Told>(`api/overview?minutes=${span}`, { every: 4000 });
  const health = useAsk<Health>("api/queues/health", { every: 3000, always: true });
  const workers = useAsk<Workers>("api/workers", { every: 5000, always: true });
  const now = queues.value ?? health.data?.details ?? null;
  if (!now && health.error) return <Failed error={health.error} again={health.again} />;
  if (!now) return <Loading rows={8} />;
  return (
    <>
      <Head title={t("Overview")} />
      <Verdict told={health.data?.status === "unhealthy" && told.error ? health.data : (told.data?.verdict ?? health.data)} />
      <Figures now={Object.values(now)} told={told.data} workers={workers.data} />
      <Card
        title={t("Jobs per minute")}
        aside={
          <Choice<Span>
            label={t("How far back")}
            value={span}
            options={[
              ["60", "1 h"],
              ["360", "6 h"],
              ["1440", "24 h"],
            ]}
            onPick={setSpan}
          />
        }
      >
        {told.data ? <Throughput told={told.data} /> : told.error ? <Failed error={told.error} again={told.again} /> : <Loading rows={5} />}
      </Card>
      <div class="columns">
        <Failing told={told.data} />
        <Feed />
      </div>
      <QueueTable now={now} />
    </>
  );
}

/** How it is, and each problem with its subject, since when, and where to act. The server sorts them by severity. */
function Verdict({ told }: { told: Judged | undefined }) {
  if (!told) return <div class="verdict" role="status"><Loading rows={1} /></div>;
  const { status, problems } = told;
  const tone = { unhealthy: "bad", degraded: "warn", healthy: "good" } as const;
  const icon = { unhealthy: "failed", degraded: "dead", healthy: "done" } as const;
  return (
    <div class={`verdict ${tone[status]}`} role="status">
      <Icon name={icon[status]} size={20} />
      <div class="grow">
        <b>{status === "unhealthy" ? t("Something needs attention") : status === "degraded" ? t("All queues work; something waits for you") : t("All queues work normally")}</b>
        {problems.length > 0 && (
          <ul>
            {problems.slice(0, SHOWN_PROBLEMS).map((one) => (
              <li key={`${one.code} ${one.queue} ${one.schedule} ${one.task}`} class={one.severity} title={one.remedy}>
                <b>{one.schedule ?? one.queue ?? one.worker ?? ""}</b> {problem(one)}{" "}
                {one.since && <small class="faint">{t("since {time}", { time: moment(one.since) })}</small>} <a href={whereTo(one)}>{t(action[one.code])}</a>
              </li>
            ))}
            {problems.length > SHOWN_PROBLEMS && <li>{t("and {n} more", { n: problems.length - SHOWN_PROBLEMS })}</li>}
          </ul>
        )}
      </div>
    </div>
  );
}

const SHOWN_PROBLEMS = 8;

const action: Record<HealthProblem["code"], Text> = {
  away: "Show the server",
  unreadable: "Show the server",
  unserved: "Show the workers",
  unread: "Show the partitions",
  unknown: "Show the jobs",
  stale: "Show the jobs",
  blocked: "Show the keys",
  halted: "Show the keys",
  paused: "Resume the queue",
  retention: "Show the settings",
  failing: "Show the failures",
  failed: "Show the failures",
  repeated: "Show the failures",
  missed: "Show the schedules",
  overdue: "Show the schedules",
  lost: "Show the workers",
};

function whereTo(one: HealthProblem): string {
  const queue = one.queue ?? "";
  switch (one.code) {
    case "away":
    case "unreadable":
      return to.system();
    case "unserved":
    case "lost":
      return to.workers();
    case "unread":
    case "paused":
    case "retention":
      return to.queue(queue);
    case "blocked":
    case "halted":
      return to.keys(queue);
    case "failing":
    case "failed":
    case "repeated":
      return to.dead(queue);
    case "missed":
    case "overdue":
      return to.schedules();
    default:
      return to.jobs(queue, "waiting");
  }
}

function Figures({ now, told, workers }: { now: LiveStats[]; told: Told | undefined; workers: Workers | undefined }) {
  const sum = (of: (one: LiveStats) => number) => now.reduce((all, one) => all + of(one), 0);
  const oldest = now
    .filter((one) => one.oldestWaitingAt && !one.isPaused)
    .sort((a, b) => (a.oldestWaitingAt! < b.oldestWaitingAt! ? -1 : 1))[0];
  const age = oldest?.oldestWaitingAt ? Math.max(0, clock.value - Date.parse(oldest.oldestWaitingAt)) : 0;
  const hour = told?.minutes.slice(-60) ?? [];
  const failed = hour.reduce((all, one) => all + one.failed, 0);
  const done = hour.reduce((all, one) => all + one.completed, 0);
  const working = workers && workersOf(workers);
  const processes = working?.length;
  const slots = working?.reduce((all, one) => all + Object.values(one.queues).reduce((n, q) => n + q.concurrency, 0), 0);
  const share = done + failed ? failed / (done + failed) : 0;
  return (
    <div class="figures">
      <Figure label={t("Completed now")} value={rate(sum((one) => one.perSecond?.completed ?? 0))} unit="/ s" note={t("{n} in an hour", { n: done })} />
      <Figure label={t("Waiting")} value={short(sum((one) => one.waiting))} note={t("{n} later", { n: sum((one) => one.delayed) })} href={to.queues()} />
      <Figure label={t("Running")} value={count(sum((one) => one.active))} note={slots === undefined ? "" : t("of {n} slots", { n: slots })} href={to.workers()} />
      <Figure label={t("Waiting time")} value={told?.wait.p50Ms == null ? "–" : duration(told.wait.p50Ms)} note={told?.wait.p95Ms == null ? t("no job has run lately") : t("median · p95 {time}", { time: duration(told.wait.p95Ms) })} />
      <Figure label={t("Oldest waiting")} value={oldest ? duration(age) : "–"} note={oldest ? oldest.name : sum((one) => one.waiting) ? t("all held back") : t("nothing waits")} tone={age > 60_000 ? "warn" : ""} href={oldest && to.jobs(oldest.name, "waiting")} />
      <Figure label={t("Failed in an hour")} value={count(failed)} note={t("{share} of all", { share: `${rate(share * 100)} %` })} tone={failed ? "bad" : ""} href={to.dead()} />
      <Figure label={t("Workers")} value={processes === undefined ? "–" : count(processes)} note={processes === 0 ? t("no workers") : t("process|processes", { n: processes ?? 0 })} tone={processes === 0 ? "bad" : ""} href={to.workers()} />
    </div>
  );
}

function Throughput({ told }: { told: Told }) {
  const made = useMemo(() => {
    const whole = lived(told.minutes.slice(0, -1)); // the last minute is not over
    const step = whole.length > 400 ? 10 : whole.length > 100 ? 5 : 1;
    const times: number[] = [];
    const done: number[] = [];
    const failed: number[] = [];
    const put: number[] = [];
    for (let at = whole.length % step; at < whole.length; at += step) {
      const some = whole.slice(at, at + step);
      times.push(Date.parse(some[0]!.at) / 1000);
      const mean = (of: (one: (typeof some)[number]) => number) => some.reduce((all, one) => all + of(one), 0) / some.length;
      done.push(mean((one) => one.completed));
      failed.push(mean((one) => one.failed));
      put.push(mean((one) => one.enqueued));
    }
    return { times, done, failed, put };
  }, [told]);
  const series = useMemo(
    () => [
      { name: t("enqueued"), colour: "--chart-quiet", values: made.put },
      { name: t("completed"), colour: "--chart-good", values: made.done, fill: true },
      { name: t("failed"), colour: "--chart-bad", values: made.failed, fill: true },
    ],
    [made],
  );
  return <Chart times={made.times} series={series} label={t("Jobs per minute")} height={230} />;
}

function Failing({ told }: { told: Told | undefined }) {
  return (
    <Card title={t("Failing now")} aside={<a href={to.dead()}>{t("All dead letters")}</a>} flush>
      {!told ? (
        <Loading rows={3} />
      ) : told.failing.length === 0 ? (
        <Empty title={t("No dead letters in the last hour")} />
      ) : (
        <ul class="rows">
          {told.failing.slice(0, 6).map(({ queue, group }) => (
            <li key={queue + group.fingerprint}>
              <span class="row-count bad">{short(group.count)}</span>
              <a class="row-main" href={to.jobs(queue, "failed", { fingerprint: group.fingerprint })}>
                <span class="cut error-text" title={group.lastError}>{group.lastError}</span>
                <small class="faint cut">
                  {queue} · {group.tasks.join(", ")}
                </small>
              </a>
              <small class="faint"><Ago at={group.lastAt} /></small>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function Feed() {
  const seen = finished.value.slice(0, 7);
  return (
    <Card title={t("Just finished")} flush>
      {seen.length === 0 ? (
        <Empty icon="waiting" title={t("Nothing has finished since you came")}>{t("It appears here as it happens.")}</Empty>
      ) : (
        <ul class="rows feed">
          {seen.map((one) => (
            <li key={one.queue + one.id}>
              <StateBadge state={one.state} />
              <a class="row-main one-line" href={to.job(one.queue, one.id)}>
                <span class="cut feed-name">
                  {one.queue}/{one.task}
                </span>
                <small class="faint mono cut">{one.id}</small>
              </a>
              <small class="faint"><Ago at={one.finishedAt} /></small>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

function QueueTable({ now }: { now: Record<string, LiveStats> }) {
  const all = Object.values(now).sort(inOrder);
  return (
    <Card title={t("Queues")} aside={<a href={to.queues()}>{t("All queues")}</a>} flush>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th>{t("Queue")}</th>
              <th class="num">{t("per second")}</th>
              <th class="num">{t("waiting")}</th>
              <th class="num">{t("active")}</th>
              <th class="num">{t("delayed")}</th>
              <th class="num">{t("completed")}</th>
              <th class="num">{t("failed")}</th>
              <th class="num">{t("Oldest waiting")}</th>
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <tr key={one.name} data-row tabIndex={-1}>
                <td>
                  <a class="strong" href={to.queue(one.name)}>{one.name}</a> {one.isPaused && <Tag tone="warn">{t("paused")}</Tag>}
                </td>
                <td class="num" data-label={t("per second")}>{rate(one.perSecond?.completed ?? 0)}</td>
                {(["waiting", "active", "delayed", "completed", "failed"] as const).map((state) => (
                  <td class="num" key={state} data-label={t(state)}>
                    <CountLink n={one[state]} href={to.jobs(one.name, state)} tone={state === "failed" ? "bad" : ""} label={`${one.name}: ${count(one[state])} ${t(state)}`} />
                  </td>
                ))}
                <td class="num" data-label={t("Oldest waiting")}>{one.oldestWaitingAt ? duration(Math.max(0, clock.value - Date.parse(one.oldestWaitingAt))) : <span class="faint">–</span>}</td>
              </tr>
            ))}
          </tbody>
        </table>
        {all.length === 0 && <Empty icon="queues" title={t("There is no queue yet")}>{t("A queue appears here when a worker or a producer has used it.")}</Empty>}
      </div>
    </Card>
  );
}
