// The views by path. All but the first are loaded when they are wanted, or when the browser has nothing else to do.
import type { ComponentType } from "preact";
import type { IconName } from "./parts/icon";
import { Overview } from "./pages/overview";
import { to } from "./route";
import type { Text } from "./words";

type View = ComponentType;

export const views: Record<string, () => Promise<View>> = {
  "": async () => Overview,
  queues: async () => (await import("./pages/queues")).Queues,
  queue: async () => (await import("./pages/queue")).QueueView,
  jobs: async () => (await import("./pages/jobs")).Jobs,
  job: async () => (await import("./pages/job")).JobView,
  keys: async () => (await import("./pages/keys")).Keys,
  dead: async () => (await import("./pages/dead")).Dead,
  error: async () => (await import("./pages/error")).ErrorView,
  flows: async () => (await import("./pages/flows")).Flows,
  alerts: async () => (await import("./pages/alerts")).Alerts,
  limits: async () => (await import("./pages/limits")).Limits,
  schedules: async () => (await import("./pages/schedules")).Schedules,
  workers: async () => (await import("./pages/workers")).Workers,
  access: async () => (await import("./pages/access")).AccessView,
  system: async () => (await import("./pages/system")).System,
};

export interface Entry {
  path: string;
  text: Text;
  icon: IconName;
  href: () => string;
  /** What follows `g` on the keyboard. */
  letter: string;
  /** Views that belong to it. */
  also?: string[];
}

export const entries: Entry[] = [
  { path: "", text: "Overview", icon: "overview", href: to.overview, letter: "o" },
  { path: "queues", text: "Queues", icon: "queues", href: to.queues, letter: "q", also: ["queue"] },
  { path: "jobs", text: "Jobs", icon: "jobs", href: () => to.jobs(), letter: "j", also: ["job"] },
  { path: "dead", text: "Dead letters", icon: "dead", href: () => to.dead(), letter: "d", also: ["error"] },
  { path: "keys", text: "Keys", icon: "keys", href: () => to.keys(), letter: "k" },
  { path: "flows", text: "Flows", icon: "flows", href: to.flows, letter: "f" },
  { path: "limits", text: "Limits", icon: "limits", href: to.limits, letter: "l" },
  { path: "schedules", text: "Schedules", icon: "schedules", href: to.schedules, letter: "s" },
  { path: "workers", text: "Workers", icon: "workers", href: to.workers, letter: "w" },
  { path: "alerts", text: "Alerts", icon: "alerts", href: to.alerts, letter: "a" },
  { path: "access", text: "Tokens and audit", icon: "access", href: to.access, letter: "t" },
  { path: "system", text: "System", icon: "system", href: to.system, letter: "y" },
];

const loaded = new Map<string, View>([["", Overview]]);

export function ready(path: string): View | undefined {
  return loaded.get(path);
}

export async function load(path: string): Promise<void> {
  const view = await views[path]?.();
  if (view) loaded.set(path, view);
}

/** So that the next click waits for nothing. */
export function loadAll(): void {
  const idle = window.requestIdleCallback ?? ((then: () => void) => setTimeout(then, 500));
  idle(() => {
    for (const path of Object.keys(views)) void load(path).catch(() => {});
  });
}
