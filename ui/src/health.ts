// The verdict: one list of problems for the badge, the overview and the alerts, so that they cannot differ.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get } from "./api";
import { link } from "./live";
import type { Health, HealthProblem } from "./wire";

const EVERY_MS = 3000;

export const health = signal<Health | null>(null);
/** How many problems are more than information. */
export const firing = signal(0);

export function isFiring(one: HealthProblem): boolean {
  return one.severity !== "info";
}

function statusOf(problems: HealthProblem[]): Health["status"] {
  if (problems.some((one) => one.severity === "critical")) return "unhealthy";
  return problems.some(isFiring) ? "degraded" : "healthy";
}

async function ask(queues: string[]): Promise<void> {
  try {
    const told = await get<Health>("api/queues/health", AbortSignal.timeout(8000));
    const mine = (one: HealthProblem) => !queues.length || (one.queue !== null && queues.some((pattern) => fits(one.queue!, pattern)));
    const problems = told.problems.filter(mine);
    health.value = { ...told, status: statusOf(problems), problems };
    firing.value = problems.filter(isFiring).length;
  } catch {
    // the frame says that the server does not answer
  }
}

/** Whether a queue is one of a token's, whose scope may have * and ?. */
function fits(queue: string, pattern: string): boolean {
  const text = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replaceAll("*", ".*").replaceAll("?", ".");
  return new RegExp(`^${text}$`).test(queue);
}

/** Keep the verdict up to date while somebody looks. */
export function useVerdict(queues: string[]): void {
  useEffect(() => {
    void ask(queues);
    const timer = setInterval(() => {
      if (!document.hidden && link.peek() !== "paused") void ask(queues);
    }, EVERY_MS);
    const shown = () => {
      if (!document.hidden) void ask(queues);
    };
    document.addEventListener("visibilitychange", shown);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", shown);
    };
  }, [queues.join()]);
}
