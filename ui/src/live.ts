// Live: the stream of events. Read by fetch, not by EventSource, which hides the reason why a stream was refused.
// The server says "fresh" about once a second. Without that the numbers are old, and every view shows it.
// While the stream is away the counts are asked for now and then, so that the page stays useful.
import { computed, signal } from "@preact/signals";
import { get, query, url } from "./api";
import { OneStream, type WatchedJob } from "./one-stream";
import { look, me } from "./session";
import type { AllStats, Me, Stats } from "./wire";

export interface LiveStats extends Stats {
  /** Whether jobs of one key or partition wait for each other. Not known while the stream is away. */
  hasLanes?: boolean;
  /** How many of the failed jobs failed because another one of their flow did. */
  cascades?: number;
  perSecond?: Record<"enqueued" | "completed" | "failed" | "retried", number>;
}

export interface Watched {
  queue: string;
  id: string;
  state: string | null;
  progress: number | null;
  done?: number | null;
  total?: number | null;
  note?: string | null;
  attempt: number | null;
}

/** Dead letters with a cause of their own. A failed flow counts once. */
export function deadOf(one: LiveStats): number {
  return Math.max(0, one.failed - (one.cascades ?? 0));
}

type Link = "joining" | "live" | "late" | "away" | "paused";

interface State {
  queues: Record<string, LiveStats> | null;
  link: Link;
  knownAt: number;
  place: string;
}

const FRESH_MS = 2600; // the numbers are old if the server was silent for so long, however long it needs for them
const SILENT_MS = 22_000; // the server says something every 15 s

export const queues = signal<Record<string, LiveStats> | null>(null);
/** By how many jobs a second the backlog of each queue shrinks, smoothed over about a minute. */
export const drains = signal<Record<string, number>>({});
export const watched = signal<Watched | null>(null);
/** How many times something has changed; pages ask again when it has. */
export const changes = signal(0);
/** "late": the stream is open, but the server that keeps the jobs does not answer. */
export const link = signal<Link>("joining");
/** When the counts on the page were last known to be right. */
export const knownAt = signal(Date.now());
/** Whether the numbers on the page may be old. */
export const stale = computed(() => link.value === "late" || link.value === "away" || link.value === "paused");

let watching: WatchedJob | null = null;
let stream: AbortController | null = null;
let place = "";
let lateness = 0;

const tabs = new OneStream({
  lead: (signal) => void read(signal),
  take,
  state: (): State => ({ queues: queues.peek(), link: link.peek(), knownAt: knownAt.peek(), place }),
  join(told) {
    const state = told as State;
    if (link.peek() === "paused") return;
    if (state.queues) merge(state.queues, true);
    knownAt.value = state.knownAt;
    place = state.place;
    clearTimeout(lateness);
    if (state.link === "live") fresh();
    else if (state.link !== "paused") link.value = state.link;
  },
  wishes: () => stream?.abort("asked"),
});

/** Hear of one job more closely; null is all queues. */
export function watch(job: WatchedJob | null): void {
  watching = job;
  watched.value = null;
  tabs.watch(job);
}

export function pauseLive(pause: boolean): void {
  link.value = pause ? "paused" : "joining";
  clearTimeout(lateness);
  if (pause) tabs.leave();
  else start();
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    tabs.leave();
    clearTimeout(lateness);
  } else if (me.peek() && link.peek() !== "paused") {
    expectFresh(); // what is shown may be from before it was hidden
    start();
  }
});

export function start(): void {
  const person: Me | null | undefined = me.peek();
  if (!person || document.hidden || link.peek() === "paused" || tabs.joined) return;
  tabs.join(`qbull ${url("").href} ${person.app} ${person.role} ${person.name}`);
}

/** Read the stream until another tab does, or nobody looks. */
async function read(mine: AbortSignal): Promise<void> {
  let wait = 500;
  while (me.peek() && !mine.aborted) {
    const began = Date.now();
    const why = await listen(mine).catch(() => "broken");
    if (mine.aborted) return;
    if (why === "asked") continue;
    if (why === "refused") await look();
    if (!me.peek()) return tabs.leave();
    wait = Date.now() - began > 10_000 ? 500 : Math.min(wait * 2, 8_000);
    clearTimeout(lateness);
    link.value = "away";
    tabs.tell();
    await ask();
    tabs.tell();
    await new Promise((then) => setTimeout(then, wait));
  }
}

async function ask(): Promise<void> {
  try {
    const told = await get<AllStats>("api/queues/stats", AbortSignal.timeout(4000));
    merge(told.queues, true);
    knownAt.value = Date.now();
  } catch {
    // the banner says since when
  }
}

async function listen(leading: AbortSignal): Promise<"ended" | "refused" | "asked"> {
  const mine = (stream = new AbortController());
  const stop = () => mine.abort("asked");
  leading.addEventListener("abort", stop);
  let silence = 0;
  const heard = () => {
    clearTimeout(silence);
    silence = window.setTimeout(() => mine.abort("silent"), SILENT_MS);
  };
  heard();
  try {
    const wanted = tabs.watched.map((one) => `${encodeURIComponent(one.queue)}/${encodeURIComponent(one.job)}`).join();
    const answer = await fetch(url(`api/events${query({ freshness: "true", watch: wanted })}`), {
      credentials: "same-origin",
      headers: place ? { "last-event-id": place } : {},
      signal: mine.signal,
    });
    if (answer.status === 401) return "refused";
    if (!answer.ok || !answer.body) throw new Error(String(answer.status));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "ended";
      heard();
      text += value;
      const events = text.split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) tabs.pass(event);
    }
  } catch (error) {
    if (mine.signal.reason === "asked") return "asked";
    throw error;
  } finally {
    clearTimeout(silence);
    leading.removeEventListener("abort", stop);
    if (!mine.signal.aborted) mine.abort("over");
  }
}

function take(text: string): void {
  if (link.peek() === "paused") return;
  let name = "";
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
    else if (line.startsWith("id: ")) place = line.slice(4);
  }
  if (!name) return;
  const told = JSON.parse(data);
  if (name === "fresh") return known(told.ageMs);
  if (name === "snapshot") merge(told.queues, true);
  else if (name === "stats") merge(told.queues, false);
  else if (name === "progress") {
    if (told.queue !== watching?.queue || told.id !== watching?.job) return; // for another tab
    watched.value = told;
  }
  if (name === "snapshot") known(0);
  if (name !== "bye") changes.value++;
}

/** The server answers; the counts are so old. */
function known(ageMs: number): void {
  knownAt.value = Date.now() - ageMs;
  fresh();
}

function fresh(): void {
  link.value = "live";
  expectFresh();
}

function expectFresh(): void {
  clearTimeout(lateness);
  lateness = window.setTimeout(() => {
    if (link.peek() === "live" || link.peek() === "joining") link.value = "late";
  }, FRESH_MS);
}

const SMOOTHING = 0.05;

function merge(told: Record<string, LiveStats>, all: boolean): void {
  const drained = { ...drains.peek() };
  for (const { name, perSecond } of Object.values(told)) {
    if (!perSecond) continue;
    const now = perSecond.completed + perSecond.failed - perSecond.enqueued;
    drained[name] = drained[name] === undefined ? now : drained[name] * (1 - SMOOTHING) + now * SMOOTHING;
  }
  drains.value = drained;
  queues.value = all ? told : { ...queues.value, ...told };
  changes.value++;
}
