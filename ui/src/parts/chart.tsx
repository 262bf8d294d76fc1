// Charts over time, drawn by uPlot. The values under the pointer are said above it; a sentence says the same to those who do not see it.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { count, rate } from "../format";
import { dark } from "../theme";
import { locale } from "../words";
import type { Minute } from "../wire";

export interface Series {
  name: string;
  colour: string;
  values: number[];
  fill?: boolean;
}

interface ChartProps {
  /** Seconds since 1970. */
  times: number[];
  series: Series[];
  label: string;
  height?: number;
}

const FEWEST = 15; // minutes in a chart

/** Without the minutes before anything was done: a new server has no empty half. */
export function lived(minutes: Minute[]): Minute[] {
  const first = minutes.findIndex((one) => one.enqueued || one.completed || one.failed);
  return first > 0 ? minutes.slice(Math.max(0, Math.min(first - 1, minutes.length - FEWEST))) : minutes;
}

function css(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The colour that a custom property means now, light or dark. */
function paint(name: string, alpha = 1): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return alpha === 1 ? found : found.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);
}

export function Chart({ times, series, label, height = 220 }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [under, setUnder] = useState<number | null>(null);
  const names = series.map((one) => one.name).join();

  useEffect(() => {
    const inside = box.current;
    if (!inside) return;
    const quiet = paint("--muted");
    const grid = { stroke: paint("--line"), width: 1 };
    const font = `11px ${css("--sans")}`;
    const made = new uPlot(
      {
        width: inside.clientWidth || 600,
        height,
        padding: [10, 18, 0, 0],
        legend: { show: false },
        cursor: { y: false, points: { size: 7 } },
        hooks: { setCursor: [(one) => setUnder(one.cursor.idx ?? null)] },
        scales: { y: { range: (_, __, max) => [0, Math.max(max * 1.12, 4)] } },
        axes: [
          {
            stroke: quiet,
            font,
            grid: { show: false },
            ticks: { show: false },
            size: 26,
            values: (_, splits) =>
              splits.map((at) =>
                new Intl.DateTimeFormat(locale.peek(), { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(new Date(at * 1000)),
              ),
          },
          { stroke: quiet, font, grid, ticks: { show: false }, size: 44, values: (_, splits) => splits.map((n) => rate(n)) },
        ],
        series: [
          {},
          ...series.map((one) => ({
            label: one.name,
            stroke: paint(one.colour),
            width: 1.75,
            fill: one.fill ? paint(one.colour, 0.13) : undefined,
            paths: uPlot.paths.spline?.(),
            points: { show: false },
          })),
        ],
      },
      [times, ...series.map((one) => one.values)],
      inside,
    );
    plot.current = made;
    const fit = new ResizeObserver(() => made.setSize({ width: inside.clientWidth, height }));
    fit.observe(inside);
    return () => {
      fit.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [names, height, dark.value, locale.value]);

  useEffect(() => {
    plot.current?.setData([times, ...series.map((one) => one.values)]);
  }, [times, series]);

  const at = under !== null && under < times.length ? under : null;
  const sums = series.map((one) => `${one.name}: ${count(one.values.reduce((a, b) => a + b, 0))}`).join(", ");
  return (
    <figure class="chart">
      <figcaption class="chart-legend" aria-hidden="true">
        {series.map((one) => (
          <span key={one.name}>
            <i style={{ background: `var(${one.colour})` }} />
            {one.name}
            <b>{count(at === null ? one.values.reduce((a, b) => a + b, 0) : (one.values[at] ?? 0))}</b>
          </span>
        ))}
        <span class="faint">
          {at === null
            ? ""
            : new Intl.DateTimeFormat(locale.value, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(new Date((times[at] ?? 0) * 1000))}
        </span>
      </figcaption>
      <div ref={box} class="chart-box" role="img" aria-label={`${label}. ${sums}`} />
    </figure>
  );
}

/** A line without axes, for a row of a table. */
export function Spark({ values, tone = "--accent" }: { values: number[]; tone?: string }) {
  const most = Math.max(...values, 1);
  const step = 100 / Math.max(values.length - 1, 1);
  const line = values.map((n, at) => `${(at * step).toFixed(1)},${(23 - (n / most) * 20).toFixed(1)}`).join(" ");
  return (
    <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true" style={{ color: `var(${tone})` }}>
      <polygon points={`0,24 ${line} 100,24`} />
      <polyline points={line} />
    </svg>
  );
}
