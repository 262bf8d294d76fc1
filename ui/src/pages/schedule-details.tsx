// What a schedule has done and will do: its next five runs, its last ones, and how it treats late and overlapping runs.
import { at } from "../api";
import { useAsk } from "../ask";
import { count, duration, shortMoment, zoneHere } from "../format";
import { StateBadge, Tag } from "../parts/basics";
import { Empty } from "../parts/blank";
import { to } from "../route";
import { t } from "../words";
import type { PastRun, PastRuns, Preview, Schedule } from "../wire";
import { outcomeClass, outcomeWord, saidOf } from "./schedule-day";

const SHOWN_RUNS = 20;

export function ScheduleDetails({ one }: { one: Schedule }) {
  return (
    <div class="schedule-body">
      <LastRuns one={one} />
      <div class="stack">
        <NextRuns one={one} />
        <dl class="facts">
          <div>
            <dt>{t("Runs")}</dt>
            <dd>
              <span>
                {t("{n} started", { n: count(one.fired) })}
                {one.skipped > 0 && ` · ${t("{n} skipped", { n: count(one.skipped) })}`}
                {one.missed > 0 && <span class="bad-text"> · {t("{n} missed", { n: count(one.missed) })}</span>}
              </span>
            </dd>
          </div>
          <div>
            <dt>{t("When runs were missed")}</dt>
            <dd>{one.catchUp === "skip" ? t("skip them") : one.catchUp === "one" ? t("run once") : t("run all of them")}</dd>
          </div>
          <div>
            <dt>{t("While the last run is active")}</dt>
            <dd>{one.overlap === "skip" ? t("skip the run") : t("run another one")}</dd>
          </div>
        </dl>
      </div>
    </div>
  );
}

/** A bar for each of the last runs: the taller, the longer it took. */
export function RunBars({ runs, queue }: { runs: PastRun[]; queue: string }) {
  const longest = Math.max(1, ...runs.map((run) => run.durationMs ?? 0));
  const failed = runs.filter((run) => run.outcome === "failed").length;
  return (
    <span class="run-bars" role="img" aria-label={t("the last {n} runs, {bad} failed", { n: runs.length, bad: failed })}>
      {[...runs].reverse().map((run) => (
        <span key={run.firedAt + run.jobId} class={`run ${outcomeClass(run)}`} style={{ height: `${4 + 14 * ((run.durationMs ?? 0) / longest)}px` }} title={`${queue} · ${saidOf(run)}`} />
      ))}
    </span>
  );
}

function LastRuns({ one }: { one: Schedule }) {
  const asked = useAsk<PastRuns>(at.schedule(one.name, "/runs"), { every: 5000, always: true });
  const runs = asked.data?.runs.slice(0, SHOWN_RUNS) ?? [];
  if (asked.data && runs.length === 0) return <Empty icon="schedules" title={t("It has not run yet")} />;
  return (
    <table class="dense last-runs">
      <caption>{t("The last {n} run|The last {n} runs", { n: runs.length })}</caption>
      <thead>
        <tr>
          <th>{t("Started")}</th>
          <th>{t("Outcome")}</th>
          <th class="num">{t("Took")}</th>
        </tr>
      </thead>
      <tbody>
        {runs.map((run) => (
          <tr key={run.firedAt + run.jobId}>
            <td class="nowrap">{run.jobId ? <a href={to.job(one.queue, run.jobId)}>{shortMoment(run.firedAt)}</a> : shortMoment(run.firedAt)}</td>
            <td>{run.jobId && run.outcome ? <StateBadge state={run.outcome} /> : <Tag tone={run.outcome === "missed" ? "bad" : "plain"}>{outcomeWord(run)}</Tag>}</td>
            <td class="num nowrap">{run.durationMs === null ? <span class="faint">–</span> : duration(run.durationMs)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function NextRuns({ one }: { one: Schedule }) {
  const asked = useAsk<Preview>(at.schedule(one.name, "/preview?count=5"), { every: 20_000, always: true });
  const next = one.next.length >= 5 ? one.next.slice(0, 5) : (asked.data?.next ?? one.next);
  const same = one.tz === zoneHere;
  return (
    <table class="next-runs">
      <caption>{one.paused ? t("The next five runs, if it were not paused") : t("The next five runs")}</caption>
      <thead>
        <tr>
          <th>{one.tz}</th>
          {!same && <th>{t("Yours")}</th>}
        </tr>
      </thead>
      <tbody>
        {next.map((moment) => (
          <tr key={moment}>
            <td>{shortMoment(moment, one.tz)}</td>
            {!same && <td class="faint">{shortMoment(moment)}</td>}
          </tr>
        ))}
        {next.length === 0 && (
          <tr>
            <td colSpan={2} class="faint">{t("never again")}</td>
          </tr>
        )}
      </tbody>
    </table>
  );
}
