// How long a job runs, beside what is usual for its task.
import { at } from "../api";
import { useAsk } from "../ask";
import { clock, duration } from "../format";
import { t } from "../words";
import type { Job, QueueLatency } from "../wire";

export function RunTime({ job }: { job: Job }) {
  const told = useAsk<QueueLatency>(at.queue(job.queue, "/latency?span=24h"), { every: 10_000 });
  const usual = told.data?.tasks.find((one) => one.task === job.task)?.latency.run.p95 ?? null;
  const running = job.state === "active" && job.startedAt ? Math.max(0, clock.value - Date.parse(job.startedAt)) : null;
  const taken = running ?? job.durationMs;
  if (taken === null) return <>–</>;
  const slow = usual !== null && taken > usual;
  return (
    <>
      <span class={slow && running !== null ? "bad-text" : ""}>{duration(taken)}</span>
      {usual !== null && <small class="faint"> {slow ? t("above its p95 of 24 h: {time}", { time: duration(usual) }) : t("p95 of its task in 24 h: {time}", { time: duration(usual) })}</small>}
    </>
  );
}
