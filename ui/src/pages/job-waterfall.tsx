// The life of a job as a waterfall: how long it waited, each attempt, and the backoff between two of them.
import { clock, duration, moment } from "../format";
import { t } from "../words";
import type { Attempt, Job } from "../wire";

interface Segment {
  kind: "waited" | "backoff" | "ran" | "failed" | "running";
  text: string;
  start: number;
  end: number;
}

/** From when it was enqueued until it ended, or until now. */
export function segmentsOf(job: Job, attempts: Attempt[], now: number): Segment[] {
  const segments: Segment[] = [];
  let at = Date.parse(job.createdAt);
  const wait = (until: number, first: boolean) => {
    if (until > at) segments.push({ kind: first ? "waited" : "backoff", text: first ? t("Waited") : t("Backoff"), start: at, end: until });
  };
  attempts.forEach((one, n) => {
    if (!one.at) return;
    const start = Date.parse(one.at);
    wait(start, segments.length === 0);
    const well = n === attempts.length - 1 && job.state === "completed";
    at = Math.max(start + one.durationMs, at);
    segments.push({ kind: well ? "ran" : "failed", text: t("Attempt {n}", { n: one.attempt }), start, end: at });
  });
  if (job.state === "active" && job.startedAt) {
    const start = Date.parse(job.startedAt);
    wait(start, segments.length === 0);
    segments.push({ kind: "running", text: t("Attempt {n}", { n: job.attempt }), start, end: Math.max(now, start) });
  } else if (job.state === "waiting" || job.state === "delayed") wait(now, segments.length === 0);
  return segments;
}

export function Waterfall({ job, attempts }: { job: Job; attempts: Attempt[] }) {
  const segments = segmentsOf(job, attempts, clock.value);
  const first = segments[0]?.start ?? 0;
  const span = Math.max((segments[segments.length - 1]?.end ?? 0) - first, 1);
  if (segments.length === 0) return null;
  return (
    <ol class="waterfall" aria-label={t("How long each step took")}>
      {segments.map((one, n) => (
        <li key={n} class={one.kind} title={`${moment(new Date(one.start).toISOString())} – ${moment(new Date(one.end).toISOString())}`}>
          <span class="cut">{one.text}</span>
          <span class="waterfall-line"><i style={{ left: `min(${(100 * (one.start - first)) / span}%, 100% - 2px)`, width: `${(100 * (one.end - one.start)) / span}%` }} /></span>
          <span class="num">{duration(one.end - one.start)}</span>
        </li>
      ))}
    </ol>
  );
}
