// The keyboard of a chart: arrows move over its steps, Enter opens the jobs of one, + and - zoom.
import { useState } from "preact/hooks";
import { t } from "../words";
import type { Period } from "./chart";

interface ChartKeysProps {
  label: string;
  /** The start of each step, in seconds since 1970. */
  times: number[];
  /** Seconds. */
  step: number;
  /** The time of a step and its values, in words. */
  text: (at: number) => string;
  /** The step that the keyboard is at, or null when it has left. */
  onMove: (at: number | null) => void;
  onPick?: (period: Period) => void;
  onZoom?: (period: Period | null) => void;
}

const FEWEST_STEPS = 5;

/** It lies over the chart and lets the pointer through. */
export function ChartKeys({ label, times, step, text, onMove, onPick, onZoom }: ChartKeysProps) {
  const [at, setAt] = useState<number | null>(null);
  const last = times.length - 1;
  const here = Math.min(at ?? last, last);
  const move = (to: number) => {
    const next = Math.max(0, Math.min(to, last));
    setAt(next);
    onMove(next);
  };
  const zoom = () => {
    const half = Math.max(Math.floor(times.length / 4), FEWEST_STEPS / 2) * step;
    const from = Math.max(times[0]!, Math.floor((times[here]! - half) / step) * step);
    onZoom?.({ from, to: from + Math.ceil((2 * half) / step) * step });
  };
  const press = (event: KeyboardEvent) => {
    const start = times[here];
    if (event.ctrlKey || event.metaKey || event.altKey || start === undefined) return;
    const keys: Record<string, (() => void) | undefined> = {
      ArrowLeft: () => move(here - 1),
      ArrowRight: () => move(here + 1),
      PageUp: () => move(here - 10),
      PageDown: () => move(here + 10),
      Home: () => move(0),
      End: () => move(last),
      Enter: onPick && (() => onPick({ from: start, to: start + step })),
      "+": onZoom && zoom,
      "-": onZoom && (() => onZoom(null)),
    };
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  if (times.length === 0) return null;
  return (
    <div
      class="chart-keys"
      role="slider"
      tabIndex={0}
      aria-label={t("{label}, step by step", { label })}
      aria-valuemin={0}
      aria-valuemax={last}
      aria-valuenow={here}
      aria-valuetext={text(here)}
      aria-description={onPick ? t("Arrows move, Enter opens the jobs, + zooms in, - zooms out") : t("Arrows move, + zooms in, - zooms out")}
      onKeyDown={press}
      onFocus={() => move(here)}
      onBlur={() => {
        setAt(null);
        onMove(null);
      }}
    />
  );
}
