// The life of a job as a waterfall: how long it waited and why, each attempt, and the backoff between two of them.
import { at, query } from "../api";
import { useAsk } from "../ask";
import { clock, duration, moment } from "../format";
import { t } from "../words";
import type { Attempt, Flow, Job, Marks, Why } from "../wire";
import { flowWaitOf, type KnownWaits, neverRan, partsOf, pausesOf } from "./job-waits";

interface Segment {
  kind: "waited" | "backoff" | "ran" | "failed" | "running";
  text: string;
  start: number;
  end: number;
}

/** From when it was enqueued until it ended, or until now. */
export function segmentsOf(job: Job, attempts: Attempt[], known: KnownWaits, now: number): Segment[] {
  const segments: Segment[] = [];
  let reached = Date.parse(job.createdAt);
  const wait = (until: number, isPresent = false) => {
    const kind = segments.some((one) => one.kind !== "waited") ? "backoff" : "waited";
    const parts = until > reached ? partsOf(reached, until, known, kind === "waited" ? t("Waited") : t("Backoff"), isPresent) : [];
    segments.push(...parts.map((one) => ({ kind, ...one }) as Segment));
  };
  attempts.forEach((one, n) => {
    if (!one.at || neverRan(job, one)) return;
    const start = Date.parse(one.at);
    wait(start);
    const well = n === attempts.length - 1 && job.state === "completed";
    reached = Math.max(start + one.durationMs, reached);
    segments.push({ kind: well ? "ran" : "failed", text: t("Attempt {n}", { n: one.attempt }), start, end: reached });
  });
  if (job.state === "active" && job.startedAt) {
    const start = Date.parse(job.startedAt);
    wait(start);
    segments.push({ kind: "running", text: t("Attempt {n}", { n: job.attempt }), start, end: Math.max(now, start) });
  } else if (job.state === "waiting" || job.state === "delayed") wait(now, true);
  return segments;
}

const HOUR_MS = 3_600_000;
const KEPT_SPANS = [["1h", HOUR_MS], ["24h", 24 * HOUR_MS], ["7d", 168 * HOUR_MS], ["30d", 720 * HOUR_MS]] as const;

/** What the audit log, its flow and the present reason tell about the waits of a job. */
function useWaits(job: Job): KnownWaits {
  const open = job.state === "waiting" || job.state === "delayed";
  const created = Date.parse(job.createdAt);
  const age = Date.now() - created;
  const span = KEPT_SPANS.find(([, most]) => age < most * 0.9)?.[0] ?? "30d";
  const marks = useAsk<Marks>(`api/marks${query({ queue: job.queue, span })}`, { every: open ? 5000 : 0 });
  const flow = useAsk<Flow>(job.flow ? at.job(job.queue, job.id, "/flow") : null, { every: open ? 3000 : 0 });
  const why = useAsk<Why>(open ? at.job(job.queue, job.id, "/why") : null, { every: 3000 });
  const now = clock.value;
  return {
    flow: flowWaitOf(job, flow.data, now),
    pauses: pausesOf(marks.data?.marks ?? [], created, now),
    now: open ? (why.data?.reasons[0]?.code ?? null) : null,
  };
}

export function Waterfall({ job, attempts }: { job: Job; attempts: Attempt[] }) {
  const known = useWaits(job);
  const segments = segmentsOf(job, attempts, known, clock.value);
  const first = segments[0]?.start ?? 0;
  const span = Math.max((segments[segments.length - 1]?.end ?? 0) - first, 1);
  if (segments.length === 0) return null;
  return (
    <ol class="waterfall" aria-label={t("How long each step took")}>
      {segments.map((one, n) => (
        <li key={n} class={one.kind} title={`${one.text}: ${moment(new Date(one.start).toISOString())} – ${moment(new Date(one.end).toISOString())}`}>
          <span class="cut">{one.text}</span>
          <span class="waterfall-line"><i style={{ left: `min(${(100 * (one.start - first)) / span}%, 100% - 2px)`, width: `${(100 * (one.end - one.start)) / span}%` }} /></span>
          <span class="num">{duration(one.end - one.start)}</span>
        </li>
      ))}
    </ol>
  );
}
