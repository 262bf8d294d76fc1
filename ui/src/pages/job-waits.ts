// Why a job waited, as far as it is stored: the jobs of its flow, pauses of its queue, and the present reason.
import { t, type Text } from "../words";
import type { Attempt, Flow, Job, Mark, Reason } from "../wire";

export interface Wait {
  text: string;
  start: number;
  end: number;
}

/** The facts about the waits of a job. Times are in milliseconds since 1970. */
export interface KnownWaits {
  flow: { task: string; end: number } | null;
  pauses: { start: number; end: number }[];
  /** The reason why it waits now. */
  now: Reason["code"] | null;
}

const SHORTEST_MS = 1;
const PAUSES = new Set(["pause queue", "pause all queues"]);
const RESUMES = new Set(["resume queue", "resume all queues"]);

const present: Partial<Record<Reason["code"], Text>> = {
  due: "Waits for its time",
  retry: "Backoff",
  sleeping: "Sleeps",
  signal: "Waits for a signal",
  called: "Waits for other jobs",
  flow: "Waits for other jobs",
  paused: "The queue is paused",
  held: "The queue rests",
  halted: "Its key is halted",
  behind: "Behind others of its key",
  "put-off": "Waits for the limit of its key",
  rate: "Waits for the rate limit",
  limit: "Waits for the concurrency limit",
  "shared-limit": "Waits for a shared limit",
  line: "Behind others",
  busy: "All slots are in use",
  "no-worker": "No worker serves the queue",
  unread: "No worker reads its partition",
  "no-task": "No worker knows the task",
  "no-label": "No worker has its label",
};

/** It failed with another job of its flow; no worker ever had it. */
export function neverRan(job: Job, one: Attempt): boolean {
  return job.state === "failed" && job.flow !== null && job.worker === null && one.durationMs === 0;
}

/** The pauses of a queue after a time. Where the first event is its end, it had been paused before. */
export function pausesOf(marks: Mark[], since: number, now: number): KnownWaits["pauses"] {
  const pauses: KnownWaits["pauses"] = [];
  let start: number | null = null;
  for (const one of marks) {
    const at = Date.parse(one.at);
    if (PAUSES.has(one.action)) start ??= at;
    else if (RESUMES.has(one.action)) {
      if (start !== null || pauses.length === 0) pauses.push({ start: start ?? since, end: at });
      start = null;
    }
  }
  if (start !== null) pauses.push({ start, end: now });
  return pauses.filter((one) => one.end > since);
}

/** The jobs of its flow that a job had to wait for: the last of them that ended. */
export function flowWaitOf(job: Job, flow: Flow | undefined, now: number): KnownWaits["flow"] {
  const own = flow?.steps.find((one) => one.id === job.id && one.queue === job.queue);
  let last: KnownWaits["flow"] = null;
  for (const number of own?.waitsFor ?? []) {
    const step = flow?.steps[number];
    if (!step) continue;
    const end = step.finishedAt ? Date.parse(step.finishedAt) : job.startedAt ? null : now;
    if (end !== null && end > (last?.end ?? 0)) last = { task: step.task, end };
  }
  return last;
}

/** A wait in parts, each with its reason. `plain` names the time without a known reason. */
export function partsOf(start: number, end: number, known: KnownWaits, plain: string, isPresent: boolean): Wait[] {
  const parts: Wait[] = [];
  let at = start;
  const add = (text: string, until: number) => {
    const limit = Math.min(until, end);
    if (limit - at >= SHORTEST_MS) parts.push({ text, start: at, end: limit });
    at = Math.max(at, limit);
  };
  if (known.flow) add(t("Waited for {task}", { task: known.flow.task }), known.flow.end);
  for (const one of known.pauses) {
    if (one.end <= at || one.start >= end) continue;
    add(plain, one.start);
    add(isPresent && one.end >= end ? t("The queue is paused") : t("Waited, as the queue was paused"), one.end);
  }
  const reason = isPresent && known.now ? present[known.now] : undefined;
  add(reason ? t(reason) : plain, end);
  return parts;
}
