import { JobCancelled, JobFailed, ProblemError, QbullError, ResultTimeout } from "./errors.js";
import { serverSentEvents, type QbullEvent } from "./events.js";
import type { Accepted, Job, JobOptions, NewJob, ProblemBody } from "./wire.js";

/** The arguments and the result of each task, by queue and task. */
export type TaskMap = Record<string, Record<string, { payload: object; result?: unknown }>>;

export interface QbullSettings {
  /** Address of `qbull serve`, for example `http://127.0.0.1:3050`. */
  url: string;
  /** A token of `qbull token create`, or that of QBULL_OPERATOR_TOKEN. */
  token?: string;
  /** How often a request is sent again that got no answer, or one that asks to try again. */
  retries?: number;
  /** Milliseconds for one request. */
  timeoutMs?: number;
  /** Another `fetch`, for example one with a proxy. */
  fetch?: typeof fetch;
}

export interface WaitOptions {
  /** Milliseconds until ResultTimeout. Without it, wait forever. */
  timeoutMs?: number;
  /** Ends the wait. */
  signal?: AbortSignal;
}

/** One job on the server. */
export interface JobHandle<R = unknown> {
  readonly queue: string;
  readonly id: string;
  /** Whether this call has added the job. False if one of the same id was there. */
  readonly created: boolean | null;
  info(): Promise<Job>;
  /** Wait until the job has ended. Returns its result, or throws JobFailed, JobCancelled or ResultTimeout. */
  wait(options?: WaitOptions): Promise<R>;
  cancel(): Promise<Accepted>;
  retry(): Promise<Accepted>;
  promote(): Promise<Accepted>;
  remove(): Promise<Accepted>;
}

const RETRIES = 3;
const REQUEST_TIMEOUT_MS = 30_000;
const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
const RETRIED_STATUSES = new Set([429, 502, 503, 504]);

/** A client of the REST API of qbull. `Qbull<Tasks>` checks the arguments of each task. */
export class Qbull<T extends TaskMap = TaskMap> {
  readonly #url: string;
  readonly #settings: QbullSettings;

  constructor(settings: QbullSettings) {
    this.#url = settings.url.replace(/\/+$/, "");
    this.#settings = settings;
  }

  /**
   * Enqueue a job. Durations in the options are seconds.
   *
   * A job without an id gets one here, so a request whose answer was lost is sent again and adds nothing.
   */
  async enqueue<Q extends keyof T & string, N extends keyof T[Q] & string>(
    queue: Q,
    task: N,
    payload: T[Q][N]["payload"],
    options: JobOptions = {},
  ): Promise<JobHandle<T[Q][N]["result"]>> {
    const isUnique = options.unique !== undefined && options.unique !== null;
    const id = options.id ?? (isUnique ? null : crypto.randomUUID());
    const body: NewJob = { task, payload: payload as NonNullable<NewJob["payload"]>, options: { ...options, id } };
    const path = `/api/queues/${encodeURIComponent(queue)}/jobs`;
    const answer = await this.#ask<Accepted>("POST", path, { body, mayRepeat: !isUnique });
    return this.#handle(queue, answer.jobId, answer.created ?? null);
  }

  /** A job that was enqueued before. */
  job<R = unknown>(queue: string, id: string): JobHandle<R> {
    return this.#handle<R>(queue, id, null);
  }

  /** Follow the events of all queues, of one, or the progress of one job. A lost stream is resumed. */
  async *events(
    options: { queue?: string; job?: string; signal?: AbortSignal } = {},
  ): AsyncGenerator<QbullEvent, void, undefined> {
    const query = new URLSearchParams();
    if (options.queue !== undefined) query.set("queue", options.queue);
    if (options.job !== undefined) query.set("job", options.job);
    let last = "";
    let pause = FIRST_PAUSE_MS;
    while (!options.signal?.aborted) {
      try {
        const headers: Record<string, string> = last ? { "Last-Event-ID": last } : {};
        const answer = await this.#fetch("GET", `/api/events?${query}`, { headers, signal: options.signal });
        for await (const { id, event, data } of serverSentEvents(answer.body!)) {
          pause = FIRST_PAUSE_MS;
          last = id || last;
          yield { event, data: JSON.parse(data) } as QbullEvent;
          if (options.signal?.aborted) return; // Events that came with this one are not delivered.
        }
      } catch (error) {
        if (options.signal?.aborted) return;
        if (error instanceof ProblemError && !RETRIED_STATUSES.has(error.status)) throw error;
      }
      await sleep(pause, options.signal);
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    }
  }

  #handle<R>(queue: string, id: string, created: boolean | null): JobHandle<R> {
    const path = `/api/queues/${encodeURIComponent(queue)}/jobs/${encodeURIComponent(id)}`;
    const act = (action: string) => () => this.#ask<Accepted>("POST", `${path}/${action}`);
    const info = () => this.#ask<Job>("GET", path, { mayRepeat: true });
    return {
      queue,
      id,
      created,
      info,
      wait: (options) => waited<R>(info, id, options),
      cancel: act("cancel"),
      retry: act("retry"),
      promote: act("promote"),
      remove: () => this.#ask<Accepted>("DELETE", path),
    };
  }

  async #ask<A>(method: string, path: string, how: { body?: unknown; mayRepeat?: boolean } = {}): Promise<A> {
    const attempts = how.mayRepeat ? (this.#settings.retries ?? RETRIES) : 0;
    for (let attempt = 0; ; attempt++) {
      try {
        const signal = AbortSignal.timeout(this.#settings.timeoutMs ?? REQUEST_TIMEOUT_MS);
        return (await (await this.#fetch(method, path, { body: how.body, signal })).json()) as A;
      } catch (error) {
        const isRefusal = error instanceof ProblemError && !RETRIED_STATUSES.has(error.status);
        if (isRefusal || attempt >= attempts) throw error;
      }
      await sleep(Math.min(FIRST_PAUSE_MS * 2 ** attempt, LONGEST_PAUSE_MS));
    }
  }

  async #fetch(
    method: string,
    path: string,
    { body, headers = {}, signal }: {
      body?: unknown;
      headers?: Record<string, string>;
      signal?: AbortSignal | undefined;
    },
  ): Promise<Response> {
    const { token, fetch: send = fetch } = this.#settings;
    const all: Record<string, string> = { ...headers };
    if (token !== undefined) all["Authorization"] = `Bearer ${token}`;
    if (body !== undefined || method === "POST") all["Content-Type"] = "application/json";
    const request: RequestInit = { method, headers: all, signal: signal ?? null };
    if (body !== undefined) request.body = JSON.stringify(body);
    let answer: Response;
    try {
      answer = await send(this.#url + path, request);
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new QbullError(`${this.#url}: the API cannot be reached`, { cause: error });
    }
    if (answer.ok) return answer;
    const problem = (await answer.json().catch(() => ({}))) as Partial<ProblemBody>;
    throw new ProblemError(answer.status, problem);
  }
}

/** Anything that enqueues jobs: a client, or a stand-in of your tests. */
export type Caller<T extends TaskMap = TaskMap> = Pick<Qbull<T>, "enqueue">;

async function waited<R>(info: () => Promise<Job>, id: string, options: WaitOptions = {}): Promise<R> {
  const until = options.timeoutMs === undefined ? Infinity : Date.now() + options.timeoutMs;
  for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 1.5, LONGEST_PAUSE_MS)) {
    const job = await info();
    if (job.state === "completed") return job.result as R;
    if (job.state === "failed") throw new JobFailed(job);
    if (job.state === "cancelled") throw new JobCancelled(job);
    const left = until - Date.now();
    if (left <= 0) throw new ResultTimeout(`job ${id} has not ended within ${options.timeoutMs} ms; it goes on`);
    await sleep(Math.min(pause, left), options.signal);
    options.signal?.throwIfAborted();
  }
}

/** Wait, or return early if the signal aborts. */
function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
    if (signal?.aborted) done();
  });
}
