// Jobs per minute: enqueued and completed in one chart, failures on an axis of their own.
import { useMemo } from "preact/hooks";
import { count, rate } from "../format";
import { language, t } from "../words";
import type { Mark, Minute } from "../wire";
import { Chart, lived, MarkList, type Period } from "./chart";
import { periodOf, type SpanName, zoomed, zoomTo } from "./span";

interface ThroughputProps {
  minutes: Minute[];
  span: SpanName;
  marks?: Mark[];
  onPick?: (period: Period) => void;
  height?: number;
}

/** The means of some minutes each: a day has too many for one chart. */
type What = keyof Omit<Minute, "at">;

function made(minutes: Minute[], step: number, zoom: Period | null): { times: number[]; of: (what: What) => number[]; total: (what: What) => string } {
  const whole = lived(minutes.slice(0, -1)); // the last minute is not over
  const groups: Minute[][] = [];
  for (const one of whole) {
    const at = Math.floor(Date.parse(one.at) / 60_000 / step);
    const last = groups.at(-1);
    if (last && Math.floor(Date.parse(last[0]!.at) / 60_000 / step) === at) last.push(one);
    else groups.push([one]);
  }
  const inZoom = (one: Minute) => !zoom || (Date.parse(one.at) >= zoom.from * 1000 && Date.parse(one.at) < zoom.to * 1000);
  const sum = (what: What) => minutes.filter(inZoom).reduce((all, one) => all + one[what], 0);
  const running = zoom ? undefined : minutes.at(-1);
  return {
    times: groups.map((some) => Math.floor(Date.parse(some[0]!.at) / 60_000 / step) * step * 60),
    of: (what) => groups.map((some) => some.reduce((all, one) => all + one[what], 0) / some.length),
    // The minute that is not drawn yet counts: an incident may have begun in it.
    total: (what) => t("{n} in all", { n: count(sum(what)) }) + (running ? ` · ${t("{n} this minute", { n: count(running[what]) })}` : ""),
  };
}

export function Throughput({ minutes, span, marks = [], onPick, height = 180 }: ThroughputProps) {
  const zoom = zoomed();
  const shown = zoom ? Math.min(minutes.length, (zoom.to - zoom.from) / 60) : minutes.length;
  const step = shown > 400 ? 10 : shown > 100 ? 5 : 1;
  const { flow, bad, times, totals } = useMemo(() => {
    const told = made(minutes, step, zoom);
    return {
      times: told.times,
      totals: { [t("enqueued")]: told.total("enqueued"), [t("completed")]: told.total("completed"), [t("failed")]: told.total("failed"), [t("retried")]: told.total("retried") },
      flow: [
        { name: t("enqueued"), colour: "--chart-quiet", values: told.of("enqueued") },
        { name: t("completed"), colour: "--chart-good", values: told.of("completed"), fill: true },
      ],
      bad: [
        { name: t("retried"), colour: "--chart-warn", values: told.of("retried") },
        { name: t("failed"), colour: "--chart-bad", values: told.of("failed"), fill: true },
      ],
    };
  }, [minutes, step, zoom?.from, zoom?.to, language.value]);
  const from = times[0] ?? 0;
  const asked = periodOf(span, step * 60);
  const period = asked.from < from && !zoom ? { ...asked, from } : asked;
  const shared = { times, step: step * 60, period, marks, onZoom: zoomTo, onPick, say: rate, whole: (_: unknown, one: { name: string }) => totals[one.name] ?? "" };
  return (
    <div class="throughput">
      <Chart {...shared} series={flow} label={t("Jobs per minute")} height={height} />
      <Chart {...shared} series={bad} label={t("Failures per minute")} height={92} />
      <MarkList marks={marks} />
    </div>
  );
}
