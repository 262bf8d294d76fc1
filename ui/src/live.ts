// Live: the stream of what happens. Read by fetch, not by EventSource, which hides heartbeats and the reason why a stream was refused.
// While it is away the counts are asked for now and then, so that the page stays useful.
import { signal } from "@preact/signals";
import { get, query, url } from "./api";
import { look, me } from "./session";
import type { AllStats, Stats } from "./wire";

export interface LiveStats extends Stats {
  perSecond?: Record<"enqueued" | "completed" | "failed" | "retried", number>;
}

export interface Finished {
  queue: string;
  id: string;
  task: string;
  state: "completed" | "failed" | "cancelled";
  error: string | null;
  finishedAt: string;
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

const SILENT_MS = 22_000; // the server says something every 15 s
const HIDDEN_MS = 30_000;
const FEED = 40;

export const queues = signal<Record<string, LiveStats> | null>(null);
export const finished = signal<Finished[]>([]);
export const watched = signal<Watched | null>(null);
/** How many times something has changed; pages ask again when it has. */
export const changes = signal(0);
export const link = signal<"joining" | "live" | "away" | "paused">("joining");
/** When the counts on the page were last known to be right. */
export const knownAt = signal(Date.now());

let watching: { queue: string; job: string } | null = null;
let stream: AbortController | null = null;
let place = "";
let running = false;

/** Hear of one job more closely; null is all queues. */
export function watch(job: { queue: string; job: string } | null): void {
  watching = job;
  watched.value = null;
  stream?.abort("asked");
}

export function pauseLive(pause: boolean): void {
  link.value = pause ? "paused" : "joining";
  if (pause) stream?.abort("asked");
  else void start();
}

let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = window.setTimeout(() => stream?.abort("asked"), HIDDEN_MS);
  else void start();
});

export async function start(): Promise<void> {
  if (running) return;
  running = true;
  let wait = 500;
  try {
    while (me.value && !document.hidden && link.peek() !== "paused") {
      const began = Date.now();
      const why = await listen().catch(() => "broken");
      if (why === "refused") await look();
      if (stream?.signal.reason === "asked") continue; // another job, or nobody looks
      if (!me.value) break;
      wait = Date.now() - began > 10_000 ? 500 : Math.min(wait * 2, 8_000);
      link.value = "away";
      await ask();
      await new Promise((then) => setTimeout(then, wait));
    }
  } finally {
    running = false;
  }
}

async function ask(): Promise<void> {
  try {
    const told = await get<AllStats>("api/queues/stats");
    merge(told.queues, true);
  } catch {
    // the banner says since when
  }
}

async function listen(): Promise<"ended" | "refused"> {
  const mine = (stream = new AbortController());
  let silence = 0;
  const heard = () => {
    clearTimeout(silence);
    silence = window.setTimeout(() => mine.abort("silent"), SILENT_MS);
  };
  heard();
  try {
    const answer = await fetch(url(`api/events${query({ queue: watching?.queue, job: watching?.job })}`), {
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
      knownAt.value = Date.now();
      link.value = "live";
      text += value;
      const events = text.split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) take(event);
    }
  } finally {
    clearTimeout(silence);
    if (!mine.signal.aborted) mine.abort("over");
  }
}

function take(text: string): void {
  let name = "";
  let data = "";
  for (const line of text.split("\n")) {
    if (line.startsWith("event: ")) name = line.slice(7);
    else if (line.startsWith("data: ")) data += line.slice(6);
    else if (line.startsWith("id: ")) place = line.slice(4);
  }
  if (!name) return;
  const told = JSON.parse(data);
  if (name === "snapshot") merge(told.queues, true);
  else if (name === "stats") merge(told.queues, false);
  else if (name === "progress") watched.value = told;
  else if (name === "job") finished.value = [told as Finished, ...finished.value.filter((one) => one.id !== told.id)].slice(0, FEED);
  if (name !== "bye") changes.value++;
}

function merge(told: Record<string, LiveStats>, all: boolean): void {
  queues.value = all ? told : { ...queues.value, ...told };
  knownAt.value = Date.now();
  changes.value++;
}
