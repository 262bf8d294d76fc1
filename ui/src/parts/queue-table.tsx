// The queues as a table: rows as wide as the screen, the worst first if one wants.
import { useState } from "preact/hooks";
import { useAsk } from "../ask";
import { clock, count, duration, rate } from "../format";
import { drains, type LiveStats } from "../live";
import { pauseOrResume } from "../queue-actions";
import { to } from "../route";
import { operator } from "../session";
import { t, type Text } from "../words";
import type { AllLatency, Latency } from "../wire";
import { Button, CountLink, Tag, countOf } from "./basics";
import { Empty } from "./blank";
import { inOrder } from "./own";

interface Row extends LiveStats {
  latency: Latency | undefined;
  /** Seconds until nothing waits; null if that cannot be said. */
  left: number | null;
}

const COLUMNS: { name: string; title: Text; of: (one: Row) => number | string; wide?: true }[] = [
  { name: "name", title: "Queue", of: (one) => one.name },
  { name: "rate", title: "jobs/s", of: (one) => one.perSecond?.completed ?? 0 },
  { name: "waiting", title: "waiting", of: (one) => countOf(one, "waiting") },
  { name: "left", title: "Empty in", of: (one) => (countOf(one, "waiting") ? (one.left ?? Number.MAX_VALUE) : 0) },
  { name: "oldest", title: "Oldest waiting", of: (one) => (one.oldestWaitingAt ? -Date.parse(one.oldestWaitingAt) : Number.NEGATIVE_INFINITY) },
  { name: "wait", title: "Wait p95", of: (one) => one.latency?.wait.p95 ?? -1 },
  { name: "run", title: "Run p95", of: (one) => one.latency?.run.p95 ?? -1 },
  { name: "active", title: "active", of: (one) => one.active },
  { name: "delayed", title: "delayed", of: (one) => one.delayed, wide: true },
  { name: "completed", title: "completed", of: (one) => one.completed, wide: true },
  { name: "failed", title: "failed", of: (one) => one.failed },
];

export function QueueTable({ queues, actions }: { queues: LiveStats[]; actions?: boolean }) {
  const [order, setOrder] = useState<{ by: string; down: boolean }>({ by: "name", down: false });
  const told = useAsk<AllLatency>("api/latency?span=1h", { every: 15_000, always: true });
  const latency = new Map(told.data?.queues.map((one) => [one.queue, one.latency]));
  const rows: Row[] = queues.map((one) => ({ ...one, latency: latency.get(one.name), left: leftOf(one) }));
  const by = COLUMNS.find((one) => one.name === order.by)!;
  rows.sort((a, b) => {
    if (order.by === "name") return inOrder(a, b) * (order.down ? -1 : 1);
    return (Number(by.of(a)) - Number(by.of(b))) * (order.down ? -1 : 1) || inOrder(a, b);
  });
  if (rows.length === 0) return <Empty icon="queues" title={t("There is no queue yet")}>{t("A queue appears here when a worker or a producer has used it.")}</Empty>;
  return (
    <div class="scroll">
      <table class="dense sticky">
        <thead>
          <tr>
            {COLUMNS.map((one) => (
              <th key={one.name} class={`${one.name === "name" ? "" : "num"} ${one.wide ? "wide-only" : ""}`} aria-sort={order.by === one.name ? (order.down ? "descending" : "ascending") : undefined}>
                <button type="button" class="sort" onClick={() => setOrder({ by: one.name, down: order.by === one.name ? !order.down : one.name !== "name" })}>{t(one.title)}</button>
              </th>
            ))}
            {actions && operator.value && <th><span class="unseen">{t("Actions")}</span></th>}
          </tr>
        </thead>
        <tbody>
          {rows.map((one) => (
            <tr key={one.name} data-row tabIndex={-1}>
              <td>
                <a class="strong" href={to.queue(one.name)}>{one.name}</a> {one.isPaused && <Tag tone="warn">{t("paused")}</Tag>}
              </td>
              <td class="num" data-label={t("jobs/s")}>{rate(one.perSecond?.completed ?? 0)}</td>
              <Count one={one} state="waiting" />
              <td class="num" data-label={t("Empty in")}>{countOf(one, "waiting") === 0 ? dash : one.left === null ? <span class="faint">{t("not shrinking")}</span> : duration(one.left * 1000)}</td>
              <td class="num" data-label={t("Oldest waiting")}>{one.oldestWaitingAt ? duration(Math.max(0, clock.value - Date.parse(one.oldestWaitingAt))) : dash}</td>
              <td class="num" data-label={t("Wait p95")}>{one.latency?.wait.p95 == null ? dash : duration(one.latency.wait.p95)}</td>
              <td class="num" data-label={t("Run p95")}>{one.latency?.run.p95 == null ? dash : duration(one.latency.run.p95)}</td>
              <Count one={one} state="active" />
              <Count one={one} state="delayed" />
              <Count one={one} state="completed" />
              <Count one={one} state="failed" />
              {actions && operator.value && (
                <td class="num">
                  <Button small kind="ghost" icon={one.isPaused ? "play" : "pause"} label={one.isPaused ? t("Resume {queue}", { queue: one.name }) : t("Pause {queue}", { queue: one.name })} onClick={() => pauseOrResume(one.name, one.isPaused)} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const dash = <span class="faint">–</span>;

function Count({ one, state }: { one: Row; state: "waiting" | "active" | "delayed" | "completed" | "failed" }) {
  return (
    <td class={`num ${state === "delayed" || state === "completed" ? "wide-only" : ""}`} data-label={t(state)}>
      <CountLink n={countOf(one, state)} href={to.jobs(one.name, state)} tone={state === "failed" ? "bad" : ""} label={`${one.name}: ${count(countOf(one, state))} ${t(state)}`} />
    </td>
  );
}

/** By how fast the backlog has shrunk lately. */
function leftOf(one: LiveStats): number | null {
  const drain = drains.value[one.name] ?? 0;
  return one.waiting && drain > 0.05 ? one.waiting / drain : null;
}
