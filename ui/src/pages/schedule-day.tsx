// A day of all schedules on one axis: what ran, by outcome, what will run, and the part that is no longer kept.
import { clock, duration, shortMoment } from "../format";
import { Card } from "../parts/basics";
import { t, type Text } from "../words";
import type { PastRun, ScheduleDay } from "../wire";

const HOUR_MS = 3_600_000;
const BACK_MS = 18 * HOUR_MS;
const AHEAD_MS = 6 * HOUR_MS;
const KEPT_RUNS = 30; // of each schedule, by the server
const CROWDED = 40; // more marks would touch each other

/** The classes that give an outcome its colour. */
export function outcomeClass(run: PastRun): string {
  return run.outcome === null ? "gone" : run.outcome;
}

export function outcomeWord(run: PastRun): string {
  return run.outcome === null ? t("no longer kept") : t(run.outcome as Text);
}

export function saidOf(run: PastRun): string {
  const took = run.durationMs === null ? "" : ` · ${duration(run.durationMs)}`;
  return `${shortMoment(run.firedAt)} · ${outcomeWord(run)}${took}`;
}

export function DayOfSchedules({ days }: { days: ScheduleDay[] | undefined }) {
  if (!days?.length) return null;
  const now = clock.value;
  const from = now - BACK_MS;
  const hours = [-18, -12, -6, 0, 6];
  return (
    <Card
      title={t("A day of all schedules")}
      aside={
        <span class="legend-row">
          <Sample kind="completed" /> <Sample kind="failed" /> <Sample kind="skipped" /> <Sample kind="planned" /> {days.some((one) => unkeptUntil(one, from) !== null) && <Sample kind="not kept" />}
        </span>
      }
    >
      <div class="day">
        {days.map((one) => (
          <DayRow key={one.name} one={one} from={from} now={now} />
        ))}
        <div class="day-row day-axis" aria-hidden="true">
          <span />
          <span class="day-line">
            {hours.map((hour) => (
              <i key={hour} style={{ left: place(now + hour * HOUR_MS, from) }}>{hour === 0 ? t("now") : `${hour > 0 ? "+" : "−"}${Math.abs(hour)} h`}</i>
            ))}
          </span>
        </div>
      </div>
    </Card>
  );
}

/** Until when the runs of the day are no longer kept, or null if all of them are. */
function unkeptUntil(one: ScheduleDay, from: number): number | null {
  const oldest = Date.parse(one.runs.at(-1)?.firedAt ?? "");
  return one.runs.length >= KEPT_RUNS && oldest > from ? oldest : null;
}

function DayRow({ one, from, now }: { one: ScheduleDay; from: number; now: number }) {
  const past = one.runs.filter((run) => Date.parse(run.firedAt) >= from);
  const coming = one.next.filter((at) => Date.parse(at) <= now + AHEAD_MS);
  const wrong = past.filter((run) => run.outcome === "failed" || run.outcome === "missed").length;
  const unkept = unkeptUntil(one, from);
  const said = [
    t("{name}: {n} runs, {bad} failed or missed, {next} planned", { name: one.name, n: past.length, bad: wrong, next: coming.length }),
    ...(unkept === null ? [] : [t("runs before {time} are no longer kept", { time: shortMoment(new Date(unkept).toISOString()) })]),
  ];
  return (
    <div class="day-row">
      <span class="cut" title={one.name}>{one.name}</span>
      <span class="day-line" role="img" aria-label={said.join(", ")}>
        {unkept !== null && <span class="unkept" style={{ right: `calc(100% - ${place(unkept, from)})` }} title={t("Only the last {n} runs of a schedule are kept; it may have run here too", { n: KEPT_RUNS })} />}
        <b class="day-now" style={{ left: place(now, from) }} />
        {past.map((run) => (
          <span key={run.firedAt + run.jobId} class={`run ${outcomeClass(run)}`} style={{ left: inside(Date.parse(run.firedAt), from) }} title={saidOf(run)} />
        ))}
        {coming.length > CROWDED ? (
          <span class="run planned often" style={{ left: place(now, from) }} title={t("{n} runs or more", { n: one.next.length })} />
        ) : (
          coming.map((at) => <span key={at} class="run planned" style={{ left: inside(Date.parse(at), from) }} title={shortMoment(at)} />)
        )}
      </span>
    </div>
  );
}

function Sample({ kind }: { kind: "completed" | "failed" | "skipped" | "planned" | "not kept" }) {
  return (
    <span class="legend-one">
      <span class={kind === "not kept" ? "unkept" : `run ${kind}`} /> {t(kind)}
    </span>
  );
}

/** The place of a bar: the first and the last are not cut in half. */
function inside(at: number, from: number): string {
  return `clamp(3px, ${place(at, from)}, calc(100% - 3px))`;
}

function place(at: number, from: number): string {
  return `${Math.min(100, Math.max(0, ((at - from) / (BACK_MS + AHEAD_MS)) * 100)).toFixed(2)}%`;
}
