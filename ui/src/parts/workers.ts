// Which of the live processes are workers of somebody's tasks: those that only send alerts are not.
import type { Worker, Workers } from "../wire";

const OWN = "qbull.";

export function isOwn(queue: string): boolean {
  return queue.startsWith(OWN);
}

export function workersOf({ workers }: Workers): Worker[] {
  return workers.filter((one) => Object.keys(one.queues).some((name) => !isOwn(name)));
}
