// A heat map of durations: a column for each step, a row for each doubling of time, darker for more jobs. Drag to zoom.
import { useEffect, useRef, useState } from "preact/hooks";
import { count, duration } from "../format";
import { dark } from "../theme";
import { t } from "../words";
import { atTime, paint, type Period } from "./chart";
import { ChartKeys } from "./chart-keys";

const FIRST_BITS = 10; // the server's first row: up to 1 ms
const HEIGHT = 132;
const LEFT = 52;
const RIGHT = 14;
const DRAG_PX = 8; // less is a click

interface HeatProps {
  times: number[];
  step: number;
  rows: number[][];
  period: Period;
  label: string;
  onPick?: (period: Period) => void;
  onZoom?: (period: Period | null) => void;
}

function boundOf(row: number): number {
  return 2 ** (FIRST_BITS + row) / 1000;
}

export function Heat({ times, step, rows, period, label, onPick, onZoom }: HeatProps) {
  const box = useRef<HTMLCanvasElement>(null);
  const [drag, setDrag] = useState<{ start: number; now: number } | null>(null);
  const [reached, setHere] = useState<number | null>(null);
  // Newer times may have fewer steps.
  const here = reached === null || times.length === 0 ? null : Math.min(reached, times.length - 1);
  const most = Math.max(1, ...rows.flat());
  const high = Math.max(4, ...rows.map((one) => one.length));

  useEffect(() => {
    const canvas = box.current;
    if (!canvas) return;
    const draw = () => {
      const width = canvas.clientWidth;
      const scale = devicePixelRatio;
      canvas.width = width * scale;
      canvas.height = HEIGHT * scale;
      const ctx = canvas.getContext("2d");
      if (!ctx) return;
      ctx.scale(scale, scale);
      const inner = width - LEFT - RIGHT;
      const row = (HEIGHT - 4) / high;
      const column = (inner * step) / (period.to - period.from);
      ctx.fillStyle = paint("--chart-heat");
      times.forEach((at, n) => {
        const x = LEFT + ((at - period.from) / (period.to - period.from)) * inner;
        if (x < LEFT - 0.5 || x > width) return;
        rows[n]?.forEach((jobs, r) => {
          if (!jobs) return;
          ctx.globalAlpha = 0.12 + 0.88 * (Math.log(jobs + 1) / Math.log(most + 1));
          ctx.fillRect(x, HEIGHT - 2 - (r + 1) * row, Math.max(1, column - 0.5), Math.max(1, row - 0.5));
        });
      });
      ctx.globalAlpha = 1;
      ctx.fillStyle = paint("--muted");
      ctx.font = `11px ${getComputedStyle(canvas).fontFamily}`;
      ctx.textAlign = "right";
      for (let r = 0; r < high; r += Math.max(1, Math.ceil(high / 5))) ctx.fillText(duration(boundOf(r)), LEFT - 6, HEIGHT - 2 - r * row - row / 2 + 4);
    };
    draw();
    const fit = new ResizeObserver(draw);
    fit.observe(canvas);
    return () => fit.disconnect();
  }, [times, rows, period.from, period.to, dark.value]);

  const timeAt = (x: number) => {
    const inner = (box.current?.clientWidth ?? 1) - LEFT - RIGHT;
    return period.from + (Math.max(0, Math.min(x - LEFT, inner)) / inner) * (period.to - period.from);
  };
  /** The step with runs under the pointer, or null. */
  const stepAt = (x: number) => {
    const wanted = timeAt(x);
    const n = times.findLastIndex((at) => at <= wanted);
    return n >= 0 && wanted < times[n]! + step ? n : null;
  };
  const placeOf = (at: number) => `calc(${LEFT}px + (100% - ${LEFT + RIGHT}px) * ${Math.max(0, Math.min(1, (at - period.from) / (period.to - period.from)))})`;
  const between = (from: number, to: number) => ({ left: placeOf(from), right: `calc(100% - ${placeOf(to)})` });
  const end = (event: PointerEvent) => {
    if (!drag) return;
    setDrag(null);
    const [start, stop] = [drag.start, event.offsetX].sort((a, b) => a - b) as [number, number];
    if (stop - start >= DRAG_PX && onZoom) {
      const from = Math.floor(timeAt(start) / step) * step;
      return onZoom({ from, to: Math.max(Math.ceil(timeAt(stop) / step) * step, from + 5 * step) });
    }
    const wanted = timeAt(event.offsetX);
    const from = times.findLast((at) => at <= wanted);
    if (from !== undefined && onPick) onPick({ from, to: from + step });
  };
  const jobs = rows.flat().reduce((a, b) => a + b, 0);
  const days = period.to - period.from > 1.5 * 86_400;
  const shown = here === null ? undefined : times[here];
  return (
    <figure class="chart">
      <figcaption class="chart-legend" aria-hidden="true">
        {label} {here === null ? <span class="faint">{t("darker: more runs")}</span> : <b>{textAt(here)}</b>}
      </figcaption>
      <div class="chart-area">
        <canvas
          ref={box}
          class="heat"
          style={{ height: `${HEIGHT}px` }}
          role="img"
          aria-label={`${label}. ${t("{n} run|{n} runs", { n: jobs })}, ${t("the slowest up to {time}", { time: duration(boundOf(high - 1)) })}, ${count(times.length)}`}
          onPointerDown={(event) => {
            event.currentTarget.setPointerCapture(event.pointerId);
            setDrag({ start: event.offsetX, now: event.offsetX });
          }}
          onPointerMove={(event) => (drag ? setDrag({ ...drag, now: event.offsetX }) : setHere(stepAt(event.offsetX)))}
          onPointerLeave={() => setHere(null)}
          onPointerUp={end}
          onPointerCancel={() => setDrag(null)}
        />
        {drag && Math.abs(drag.now - drag.start) >= DRAG_PX && <i class="heat-part" style={between(timeAt(Math.min(drag.start, drag.now)), timeAt(Math.max(drag.start, drag.now)))} />}
        {shown !== undefined && <i class="heat-part" style={between(shown, shown + step)} />}
        <ChartKeys label={label} times={times} step={step} text={textAt} onMove={setHere} onPick={onPick} onZoom={onZoom} />
      </div>
    </figure>
  );

  function textAt(at: number): string {
    const row = rows[at] ?? [];
    const all = row.reduce((sum, n) => sum + n, 0);
    return `${atTime(times[at]!, days)}, ${t("{n} run|{n} runs", { n: all })}, ${t("the slowest up to {time}", { time: duration(boundOf(Math.max(row.length - 1, 0))) })}`;
  }
}
