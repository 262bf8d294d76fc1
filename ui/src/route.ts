// Where the page is: one path below the base, and a query that holds all filters, so that every view can be linked to.
// Ids and names are in the query, never in the path: they may have dots and slashes in them.
import { signal } from "@preact/signals";
import { queryOf } from "./query";

export interface Place {
  path: string;
  query: URLSearchParams;
}

export type Query = Record<string, string | number | null | undefined>;

const base = new URL(document.baseURI).pathname;

export const place = signal<Place>(read());

addEventListener("popstate", () => {
  place.value = read();
});

function read(): Place {
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : "";
  return { path: path.replace(/\/+$/, ""), query: new URLSearchParams(location.search) };
}

export function address(path: string, query: Query = {}): string {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") said.set(name, String(value));
  }
  const text = said.toString();
  return base + path + (text ? `?${text}` : "");
}

export function go(to: string, { replace = false } = {}): void {
  if (to === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  const before = place.value.path;
  place.value = read();
  if (!replace && before !== place.value.path) scrollTo(0, 0);
}

/** Change some of the query and stay; what is empty leaves it. */
export function refine(changes: Query, options = { replace: false }): void {
  const query: Query = Object.fromEntries(place.value.query);
  go(address(place.value.path, { ...query, ...changes }), options);
}

/** Links of ours are followed without loading the page anew. */
export function follow(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || link.target || link.origin !== location.origin || !link.pathname.startsWith(base) || link.hasAttribute("download")) return;
  if (link.getAttribute("href")?.startsWith("#")) return;
  event.preventDefault();
  go(link.pathname + link.search);
}

export const to = {
  overview: () => address(""),
  queues: () => address("queues"),
  queue: (name: string) => address("queue", { name }),
  jobs: (queue?: string, state?: string, more: Query = {}) => address("jobs", { q: queryOf({ queue, state, ...more }) }),
  search: (q: string) => address("jobs", { q }),
  job: (queue: string, id: string) => address("job", { queue, id }),
  keys: (queue?: string, key?: string) => address("keys", { queue, key }),
  dead: (queue?: string) => address("dead", { queue }),
  error: (queue: string, kind: string) => address("error", { queue, kind }),
  flows: () => address("flows"),
  limits: (only?: string) => address("limits", { only }),
  settings: (name: string, edit: boolean) => address("queue", { name, edit: edit ? "settings" : null }),
  alerts: () => address("alerts"),
  schedules: () => address("schedules"),
  workers: () => address("workers"),
  access: () => address("access"),
  system: () => address("system"),
};
