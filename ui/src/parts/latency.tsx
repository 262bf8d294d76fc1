// Latency of a queue: how long jobs waited and ran, as percentiles over time, as a heat map and by task.
import { useMemo } from "preact/hooks";
import { at, query } from "../api";
import { useAsk } from "../ask";
import { count, duration } from "../format";
import { place, refine } from "../route";
import { language, t } from "../words";
import type { Latency, LatencyStep, Marks, Percentiles, QueueLatency as Told } from "../wire";
import { Card } from "./basics";
import { Empty, Loading, Shown } from "./blank";
import { Chart, MarkList, type Period, type Series } from "./chart";
import { Heat } from "./heat";
import { between, openJobs, periodOf, SpanChoice, spanOf, zoomed, zoomTo } from "./span";

export const LATENCY_SPANS = ["1h", "24h", "7d", "30d"] as const;

const PARTS = [
  ["p50", "--chart-calm"],
  ["p95", "--chart-warn"],
  ["p99", "--chart-bad"],
] as const;

export function QueueLatency({ name }: { name: string }) {
  const span = spanOf(LATENCY_SPANS);
  const task = place.value.query.get("task");
  const asked = useAsk<Told>(at.queue(name, `/latency${query({ span, task, ...between(zoomed()) })}`), { every: 15_000, always: true });
  const marks = useAsk<Marks>(`api/marks${query({ span, queue: name })}`, { every: 30_000, always: true });
  return (
    <Card title={task ? t("Latency of {task}", { task }) : t("Latency")} aside={<SpanChoice allowed={LATENCY_SPANS} />}>
      <Shown answer={asked} rows={5}>
        {(told) =>
          told.steps.length === 0 ? (
            <Empty icon="waiting" title={t("No run was reported in this time")}>{t("Workers report about every 15 seconds.")}</Empty>
          ) : marks.data || marks.error ? (
            <Pictures told={told} marks={marks.data?.marks ?? []} />
          ) : (
            <Loading rows={5} /> // marks that came later would push the table away from the pointer
          )
        }
      </Shown>
    </Card>
  );
}

function Pictures({ told, marks }: { told: Told; marks: Marks["marks"] }) {
  const step = told.stepSeconds;
  const period = periodOf(told.span, step, step);
  const times = useMemo(() => told.steps.map((one) => Date.parse(one.at) / 1000), [told]);
  const shared = { step, period, marks, onZoom: zoomTo, onPick: (one: Period) => openJobs(told.queue, one) };
  const durations = useMemo(() => told.steps.map((one) => one.durations), [told]);
  return (
    <div class="latency">
      <div class="columns even">
        <Percents told={told} of="wait" shared={shared} label={t("Wait time")} />
        <Percents told={told} of="run" shared={shared} label={t("Run time")} />
      </div>
      <Heat times={times} rows={durations} label={t("Run times as a heat map")} {...shared} />
      <MarkList marks={marks} />
      <Tasks told={told} />
    </div>
  );
}

type Shared = { step: number; period: Period; marks: Marks["marks"]; onZoom: typeof zoomTo; onPick: (one: Period) => void };

function Percents({ told, of, shared, label }: { told: Told; of: "wait" | "run"; shared: Shared; label: string }) {
  const made = useMemo(() => filled(told.steps, shared.step, of), [told, of, language.value]);
  const total = told.total[of];
  return (
    <div>
      <h3>{label}</h3>
      <Chart {...shared} times={made.times} series={made.series} label={label} height={170} log say={duration} whole={(_, one) => said(total[one.name as keyof Percentiles])} />
    </div>
  );
}

/** Steps without runs are gaps, not zeros. */
function filled(steps: LatencyStep[], step: number, of: "wait" | "run"): { times: number[]; series: Series[] } {
  const known = new Map(steps.map((one) => [Date.parse(one.at) / 1000, one.latency[of]]));
  const first = Math.min(...known.keys());
  const last = Math.max(...known.keys());
  const times = Array.from({ length: Math.round((last - first) / step) + 1 }, (_, n) => first + n * step);
  return { times, series: PARTS.map(([name, colour]) => ({ name, colour, values: times.map((one) => known.get(one)?.[name] ?? null) })) };
}

function said(ms: number | null): string {
  return ms === null ? "–" : duration(ms);
}

export function LatencyCells({ one }: { one: Latency | undefined }) {
  if (!one) return <td class="num faint" colSpan={6}>–</td>;
  return (
    <>
      {(["wait", "run"] as const).flatMap((of) =>
        PARTS.map(([name]) => (
          <td class="num" key={of + name} data-label={`${of === "wait" ? t("Wait time") : t("Run time")} ${name}`}>{said(one[of][name])}</td>
        )),
      )}
    </>
  );
}

function Tasks({ told }: { told: Told }) {
  const wanted = place.value.query.get("task");
  return (
    <div class="scroll">
      <table class="dense">
        <thead>
          <tr>
            <th rowSpan={2}>{t("Task")}</th>
            <th class="num" rowSpan={2}>{t("Runs")}</th>
            <th class="num group" colSpan={3}>{t("Wait time")}</th>
            <th class="num group" colSpan={3}>{t("Run time")}</th>
          </tr>
          <tr>
            {["wait", "run"].flatMap((of) => PARTS.map(([name]) => <th class="num" key={of + name}>{name}</th>))}
          </tr>
        </thead>
        <tbody>
          {told.tasks.map((one) => (
            <tr key={one.task} data-row tabIndex={-1}>
              <td>
                <button type="button" class="as-link strong" aria-pressed={wanted === one.task} onClick={() => refine({ task: wanted === one.task ? null : one.task })}>{one.task}</button>
              </td>
              <td class="num" data-label={t("Runs")}>{count(one.latency.runs)}</td>
              <LatencyCells one={one.latency} />
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
