// The overview: does it work, how much is done, what fails, what waits for how long.
import { query } from "../api";
import { useAsk } from "../ask";
import { clock, count, duration, rate, short } from "../format";
import { health } from "../health";
import { queues, type LiveStats } from "../live";
import { Ago, Card, Figure, Head, countOf } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { Icon } from "../parts/icon";
import { workersOf } from "../parts/own";
import { ProblemList } from "../parts/problems";
import { QueueTable } from "../parts/queue-table";
import { openJobs, SpanChoice, spanOf } from "../parts/span";
import { Throughput } from "../parts/throughput";
import { to } from "../route";
import { t } from "../words";
import { KnownLine } from "./error-known";
import type { Health as Judged, Marks, Overview as Told, Workers } from "../wire";

const SPANS = ["1h", "6h", "24h"] as const;
const MINUTES = { "1h": 60, "6h": 360, "24h": 1440 };

export function Overview() {
  const span = spanOf(SPANS);
  const told = useAsk<Told>(`api/overview?minutes=${MINUTES[span]}`, { every: 3000, always: true });
  const marks = useAsk<Marks>(`api/marks${query({ span: span === "1h" ? "1h" : "24h" })}`, { every: 30_000, always: true });
  const workers = useAsk<Workers>("api/workers", { every: 5000, always: true });
  const now = queues.value ?? health.value?.details ?? null;
  if (!now && told.error) return <Failed error={told.error} again={told.again} />;
  if (!now) return <Loading rows={8} />;
  return (
    <>
      <Head title={t("Overview")} />
      <Verdict told={health.value} />
      <Figures now={Object.values(now)} told={told.data} workers={workers.data} />
      <Card title={t("Jobs per minute")} aside={<SpanChoice allowed={SPANS} />}>
        {told.data ? <Throughput minutes={told.data.minutes} span={span} marks={marks.data?.marks} onPick={(one) => openJobs(undefined, one)} /> : told.error ? <Failed error={told.error} again={told.again} /> : <Loading rows={5} />}
      </Card>
      <Failing told={told.data} />
      <Card title={t("Queues")} aside={<a href={to.queues()}>{t("All queues")}</a>} flush>
        <QueueTable queues={Object.values(now)} />
      </Card>
    </>
  );
}

/** The state in one sentence, and every problem. The server sorts them by severity. */
function Verdict({ told }: { told: Judged | null }) {
  if (!told) return <div class="verdict" role="status"><Loading rows={1} /></div>;
  const { status, problems } = told;
  const tone = { unhealthy: "bad", degraded: "warn", healthy: "good" } as const;
  const icon = { unhealthy: "failed", degraded: "dead", healthy: "done" } as const;
  return (
    <section class={`verdict ${tone[status]}`} role="status" aria-label={t("Verdict")}>
      <div class="verdict-head">
        <Icon name={icon[status]} size={18} />
        <b>{status === "unhealthy" ? t("Something needs attention") : status === "degraded" ? t("All queues work; something waits for you") : t("All queues work normally")}</b>
      </div>
      {problems.length > 0 && <ProblemList problems={problems} />}
    </section>
  );
}

function Figures({ now, told, workers }: { now: LiveStats[]; told: Told | undefined; workers: Workers | undefined }) {
  const sum = (of: (one: LiveStats) => number) => now.reduce((all, one) => all + of(one), 0);
  const oldest = now
    .filter((one) => one.oldestWaitingAt && !one.isPaused)
    .sort((a, b) => (a.oldestWaitingAt! < b.oldestWaitingAt! ? -1 : 1))[0];
  const age = oldest?.oldestWaitingAt ? Math.max(0, clock.value - Date.parse(oldest.oldestWaitingAt)) : 0;
  const hour = told?.minutes.slice(-60) ?? [];
  const failed = Math.max(0, hour.reduce((all, one) => all + one.failed, 0) - (told?.cascades ?? 0));
  const done = hour.reduce((all, one) => all + one.completed, 0);
  const working = workers && workersOf(workers);
  const processes = working?.length;
  const slots = working?.reduce((all, one) => all + Object.values(one.queues).reduce((n, q) => n + q.concurrency, 0), 0);
  const share = done + failed ? failed / (done + failed) : 0;
  return (
    <div class="figures">
      <Figure label={t("Completed now")} value={now.some((one) => one.perSecond) ? rate(sum((one) => one.perSecond?.completed ?? 0)) : "–"} unit="/ s" note={told ? t("{n} in an hour", { n: done }) : "\u00a0"} />
      <Figure label={t("Waiting")} value={short(sum((one) => countOf(one, "waiting")))} note={t("{n} delayed", { n: sum((one) => one.delayed) })} href={to.queues()} />
      <Figure label={t("Running")} value={count(sum((one) => one.active))} note={slots === undefined ? "" : t("of {n} slots", { n: slots })} href={to.workers()} />
      <SlowestWait wait={told?.wait} />
      <Figure label={t("Oldest waiting")} value={oldest ? duration(age) : "–"} note={oldest ? oldest.name : sum((one) => countOf(one, "waiting")) ? t("all held back") : t("nothing waits")} tone={age > 60_000 ? "warn" : ""} href={oldest && to.jobs(oldest.name, "waiting")} />
      <Figure label={t("Failed in an hour")} value={told ? count(failed) : "–"} note={told ? t("{share} of all", { share: `${rate(share * 100)} %` }) : "\u00a0"} tone={failed ? "bad" : ""} href={to.dead()} />
      <Figure label={t("Workers")} value={processes === undefined ? "–" : count(processes)} note={processes === 0 ? t("no workers") : t("process|processes", { n: processes ?? 0 })} tone={processes === 0 ? "bad" : ""} href={to.workers()} />
    </div>
  );
}

/** The queue whose jobs wait longest: a figure of all queues together would hide it, or look like all of them. */
function SlowestWait({ wait }: { wait: Told["wait"] | undefined }) {
  const { slowestQueue: queue, slowestP95Ms: p95, p50Ms: median } = wait ?? {};
  if (!queue || p95 == null) return <Figure label={t("Longest wait, p95")} value="–" note={wait && t("no run reported lately")} />;
  return <Figure label={t("Longest wait, p95")} value={duration(p95)} note={`${queue} · ${t("median of all {time}", { time: duration(median ?? 0) })}`} href={to.queue(queue)} />;
}

function Failing({ told }: { told: Told | undefined }) {
  return (
    <Card title={t("Failing now")} aside={<a href={to.dead()}>{t("All dead letters")}</a>} flush>
      {!told ? (
        <Loading rows={3} />
      ) : told.failing.length === 0 ? (
        <Empty title={t("No dead letters in the last hour")} />
      ) : (
        <ul class="rows failing">
          {told.failing.slice(0, 6).map(({ queue, group, cascades, acknowledged }) => (
            <li key={queue + group.fingerprint} class={acknowledged && !acknowledged.returned ? "known-row" : ""}>
              <span class="row-count bad">{count(group.count)}</span>
              <a class="row-main" href={to.error(queue, group.fingerprint)}>
                <span class="cut error-text" title={group.lastError}>{group.lastError}</span>
                <small class="faint cut">
                  {queue} · {group.tasks.join(", ")}
                  <KnownLine known={acknowledged} />
                  {cascades > 0 && ` · ${t("and {n} job of its flow|and {n} jobs of their flows", { n: cascades })}`}
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
