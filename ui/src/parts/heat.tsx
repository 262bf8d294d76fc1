// A heat map of durations: a column for each step, a row for each doubling of time, darker for more jobs.
import { useEffect, useRef } from "preact/hooks";
import { count, duration } from "../format";
import { dark } from "../theme";
import { t } from "../words";
import { paint, type Period } from "./chart";

const FIRST_BITS = 10; // the server's first row: up to 1 ms
const HEIGHT = 132;
const LEFT = 52;

interface HeatProps {
  times: number[];
  step: number;
  rows: number[][];
  period: Period;
  label: string;
  onPick?: (period: Period) => void;
}

function boundOf(row: number): number {
  return 2 ** (FIRST_BITS + row) / 1000;
}

export function Heat({ times, step, rows, period, label, onPick }: HeatProps) {
  const box = useRef<HTMLCanvasElement>(null);
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
      const inner = width - LEFT - 14;
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

  const press = (event: MouseEvent) => {
    const canvas = box.current;
    if (!canvas || !onPick) return;
    const share = (event.offsetX - LEFT) / (canvas.clientWidth - LEFT - 14);
    const wanted = period.from + share * (period.to - period.from);
    const from = times.findLast((at) => at <= wanted);
    if (from !== undefined) onPick({ from, to: from + step });
  };
  const jobs = rows.flat().reduce((a, b) => a + b, 0);
  return (
    <figure class="chart">
      <figcaption class="chart-legend" aria-hidden="true">{label}</figcaption>
      <canvas ref={box} class="heat" style={{ height: `${HEIGHT}px` }} role="img" aria-label={`${label}. ${t("{n} run|{n} runs", { n: jobs })}, ${t("the slowest up to {time}", { time: duration(boundOf(high - 1)) })}, ${count(times.length)}`} onClick={press} />
    </figure>
  );
}
