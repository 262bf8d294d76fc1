// Charts over time, drawn by uPlot: steps that invent no shapes, drag to zoom, a click on a step leads to its jobs, marks of events.
// A label above the pointer shows the values there; a sentence tells screen readers the same.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { count, rate, timeOfDay } from "../format";
import { dark } from "../theme";
import { language, locale, t } from "../words";
import type { Mark, Minute } from "../wire";
import { ChartKeys } from "./chart-keys";

export interface Series {
  name: string;
  colour: string;
  values: (number | null)[];
  fill?: boolean;
}

export interface Period {
  from: number;
  to: number;
}

interface ChartProps {
  /** The start of each step, in seconds since 1970. */
  times: number[];
  /** Seconds. */
  step: number;
  series: Series[];
  label: string;
  height?: number;
  /** Formats a value; without it, the value is shown as a count. */
  say?: (value: number) => string;
  /** Of a series without a pointer on it: the sum is meant where values are counts. */
  whole?: (values: (number | null)[], one: Series) => string;
  /** Times differ by powers of ten. */
  log?: boolean;
  period: Period;
  onZoom?: (period: Period | null) => void;
  onPick?: (period: Period) => void;
  marks?: Mark[];
}

const FEWEST = 15; // minutes in a chart
const DAY = 86_400;

/** Without the minutes before anything was done: a new server has no empty half. */
export function lived(minutes: Minute[]): Minute[] {
  const first = minutes.findIndex((one) => one.enqueued || one.completed || one.failed);
  return first > 0 ? minutes.slice(Math.max(0, Math.min(first - 1, minutes.length - FEWEST))) : minutes;
}

function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The colour that a custom property means now, light or dark. */
export function paint(name: string, alpha = 1): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return alpha === 1 ? found : found.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

export function atTime(seconds: number, days: boolean): string {
  const day = days ? ({ weekday: "short", day: "numeric" } as const) : {};
  return new Intl.DateTimeFormat(locale.peek(), { ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(new Date(seconds * 1000));
}

function dates(splits: number[], days: boolean): string[] {
  return splits.map((at) =>
    days ? new Intl.DateTimeFormat(locale.peek(), { day: "numeric", month: "short" }).format(new Date(at * 1000)) : atTime(at, false),
  );
}

/** Half of the widest time: a label at the right end of the axis is in the middle of its tick. */
function labelRoom(font: string, days: boolean): number {
  const pen = document.createElement("canvas").getContext("2d");
  if (!pen) return 28;
  pen.font = font;
  const year = Array.from({ length: 12 }, (_, month) => Date.UTC(2024, month, 28, 20) / 1000);
  return Math.ceil(Math.max(...dates(year, days).map((text) => pen.measureText(text).width)) / 2) + 4;
}

/** A step has a width: the last value goes on to the end of its step. */
function stepped(times: number[], step: number, series: Series[]): uPlot.AlignedData {
  const last = times.at(-1);
  if (last === undefined) return [[], ...series.map(() => [])];
  return [[...times, last + step], ...series.map((one) => [...one.values, one.values.at(-1) ?? null])];
}

export function Chart(props: ChartProps) {
  const { times, step, series, label, height = 200, say = count, whole, log, period, marks = [] } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const now = useRef(props);
  now.current = props;
  const [under, setUnder] = useState<number | null>(null);
  const names = series.map((one) => one.name).join();
  const days = period.to - period.from > 1.5 * DAY;

  useEffect(() => {
    const inside = box.current;
    if (!inside) return;
    const made = new uPlot(options(inside, now, setUnder, days), stepped(times, step, series), inside);
    plot.current = made;
    const fit = new ResizeObserver(() => made.setSize({ width: inside.clientWidth, height }));
    fit.observe(inside);
    return () => {
      fit.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, height, days, log, dark.value, language.value]);

  useEffect(() => {
    plot.current?.batch(() => {
      plot.current?.setData(stepped(times, step, series), false);
      plot.current?.setScale("x", { min: period.from, max: period.to });
    });
  }, [times, series, period.from, period.to, marks]);

  const at = under !== null && under < times.length ? under : null;
  const all = whole ?? ((values: (number | null)[]) => say(values.reduce<number>((a, b) => a + (b ?? 0), 0)));
  const near = at === null ? [] : marks.filter((one) => Math.abs(Date.parse(one.at) / 1000 - times[at]!) <= Math.max(step, (period.to - period.from) / 120));
  const show = (step: number | null) => {
    const made = plot.current;
    made?.setCursor(step === null ? { left: -10, top: -10 } : { left: made.valToPos(times[step]!, "x"), top: 4 });
    setUnder(step);
  };
  const textAt = (step: number) => [atTime(times[step]!, days), ...series.map((one) => `${one.name} ${one.values[step] == null ? "–" : say(one.values[step])}`)].join(", ");
  return (
    <figure class="chart">
      <figcaption class="chart-legend" aria-hidden="true">
        {series.map((one) => (
          <span key={one.name}>
            <i style={{ background: `var(${one.colour})` }} />
            {one.name}
            <b>{at === null ? all(one.values, one) : one.values[at] == null ? "–" : say(one.values[at])}</b>
          </span>
        ))}
        <span class="faint">{at === null ? "" : atTime(times[at]!, days)}</span>
        {near.map((one) => (
          <span key={one.at} class="chart-mark">{markText(one)}</span>
        ))}
      </figcaption>
      <div class="chart-area">
        <div ref={box} class={`chart-box ${props.onPick ? "pickable" : ""}`} style={{ minHeight: `${height}px` }} role="img" aria-label={`${label}. ${series.map((one) => `${one.name}: ${all(one.values, one)}`).join(", ")}`} />
        <ChartKeys label={label} times={times} step={step} text={textAt} onMove={show} onPick={props.onPick} onZoom={props.onZoom} />
      </div>
    </figure>
  );
}

function options(inside: HTMLElement, now: { current: ChartProps }, setUnder: (at: number | null) => void, days: boolean): uPlot.Options {
  const { series, height = 200, say = count, log } = now.current;
  const quiet = paint("--muted");
  const font = `11px ${css("--sans")}`;
  return {
    width: inside.clientWidth || 600,
    height,
    padding: [10, labelRoom(font, days), 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false, setScale: false } },
    hooks: {
      setCursor: [(one) => setUnder(one.cursor.idx ?? null)],
      setSelect: [(one) => zoom(one, now.current)],
      draw: [(one) => drawMarks(one, now.current.marks ?? [])],
      ready: [(one) => one.over.addEventListener("click", () => pick(one, now.current))],
    },
    scales: {
      x: { range: () => [now.current.period.from, now.current.period.to] },
      y: log ? { distr: 3, range: (_, min, max) => [10 ** Math.floor(Math.log10(Math.max(min || 1, 0.01))), 10 ** Math.ceil(Math.log10(Math.max(max || 10, 1)))] } : { range: (_, __, max) => [0, Math.max(max * 1.12, 4)] },
    },
    axes: [
      { stroke: quiet, font, grid: { show: false }, ticks: { show: false }, size: 24, space: days ? 70 : 55, values: (_, splits) => dates(splits, days) },
      {
        stroke: quiet,
        font,
        grid: { stroke: paint("--line"), width: 1 },
        ticks: { show: false },
        splits: log ? (_, __, min, max) => powers(min, max) : undefined,
        gap: 4,
        size: (_, values) => Math.max(40, ...(values ?? []).map((one) => (one ?? "").length * 6.6 + 12)),
        values: (_, splits) => splits.map((n) => (now.current.say ? say(n) : rate(n))),
      },
    ],
    series: [
      {},
      ...series.map((one) => ({
        label: one.name,
        stroke: paint(one.colour),
        width: 1.5,
        fill: one.fill ? paint(one.colour, 0.14) : undefined,
        paths: uPlot.paths.stepped?.({ align: 1 }),
        points: { show: false },
      })),
    ],
  };
}

/** 1, 10, 100 …: a few lines are enough. */
function powers(min: number, max: number): number[] {
  const first = Math.ceil(Math.log10(min) - 1e-9);
  const last = Math.floor(Math.log10(max) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first) / 4));
  return Array.from({ length: Math.floor((last - first) / every) + 1 }, (_, n) => 10 ** (first + n * every));
}

function zoom(plot: uPlot, { onZoom, step }: ChartProps): void {
  const { left, width } = plot.select;
  if (width < 8 || !onZoom) return;
  const from = Math.floor(plot.posToVal(left, "x") / step) * step;
  const to = Math.ceil(plot.posToVal(left + width, "x") / step) * step;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onZoom({ from, to: Math.max(to, from + 5 * step) });
}

function pick(plot: uPlot, { onPick, times, step }: ChartProps): void {
  const at = plot.cursor.idx;
  const from = at == null ? undefined : times[Math.min(at, times.length - 1)];
  if (from !== undefined && onPick && !plot.select.width) onPick({ from, to: from + step });
}

function drawMarks(plot: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = paint("--accent");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const one of marks) {
    const x = Math.round(plot.valToPos(Date.parse(one.at) / 1000, "x", true));
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** An event in words: 13:27 paused email. */
export function markText(one: Mark): string {
  const texts: Record<string, string> = {
    "pause queue": t("{target} was paused", { target: one.target }),
    "resume queue": t("{target} was resumed", { target: one.target }),
    "pause all queues": t("all queues were paused"),
    "resume all queues": t("all queues were resumed"),
    "change settings": t("settings of {target} were changed", { target: one.target }),
    "reset settings": t("settings of {target} were reset", { target: one.target }),
    repartition: t("{target} was repartitioned", { target: one.target }),
    "workers started": t("{n} worker started|{n} workers started", { n: one.count }),
  };
  return `${timeOfDay(one.at).slice(0, 5)} ${texts[one.action] ?? one.action}`;
}

/** The marks as a list, for those who have no pointer. */
export function MarkList({ marks }: { marks: Mark[] }) {
  if (marks.length === 0) return null;
  return (
    <ul class="mark-list" aria-label={t("Events")}>
      {marks.slice(-8).map((one) => (
        <li key={one.at + one.action + one.target}>{markText(one)}</li>
      ))}
    </ul>
  );
}

/** A line without axes, for a row of a table. */
export function Spark({ values, tone = "--accent" }: { values: number[]; tone?: string }) {
  const most = Math.max(...values, 1);
  const step = 100 / Math.max(values.length, 1);
  const line = values.map((n, at) => `${(at * step).toFixed(1)},${(23 - (n / most) * 20).toFixed(1)} ${((at + 1) * step).toFixed(1)},${(23 - (n / most) * 20).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true" style={{ color: `var(${tone})` }}>
      <polygon points={`0,24 ${line} 100,24`} />
      <polyline points={line} />
    </svg>
  );
}
