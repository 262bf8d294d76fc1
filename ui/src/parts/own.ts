// What is qbull's own: queues that carry alerts, and processes that do nothing but send them.
import type { Worker, Workers } from "../wire";

const OWN = "qbull.";

function isOwn(queue: string): boolean {
  return queue.startsWith(OWN);
}

/** By name, qbull's own ones last. */
export function inOrder(a: { name: string }, b: { name: string }): number {
  return Number(isOwn(a.name)) - Number(isOwn(b.name)) || a.name.localeCompare(b.name);
}

export function workersOf({ workers }: Workers): Worker[] {
  return workers.filter((one) => Object.keys(one.queues).some((name) => !isOwn(name)));
}
