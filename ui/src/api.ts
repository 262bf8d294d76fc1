// The API: one way to ask it. Bad answers are thrown as a Problem whose message is for people.
import { translated } from "./words";

export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const root = new URL("..", document.baseURI);

export function url(path: string): URL {
  return new URL(path, root);
}

/** Called when the session has ended, whoever notices it. */
let lost: () => void = () => {};
export function whenLost(then: () => void): void {
  lost = then;
}

let reason = "";
/** Run changes with a reason, which the audit log keeps. */
export async function because<T>(text: string, run: () => Promise<T>): Promise<T> {
  reason = text.trim();
  try {
    return await run();
  } finally {
    reason = "";
  }
}

/** The reason of the dialog that is being submitted, for changes that are sent after it has closed. */
export function reasonNow(): string {
  return reason;
}

function headersOf(method: string, body: unknown): Record<string, string> {
  const headers: Record<string, string> = body === undefined ? {} : { "content-type": "application/json" };
  if (reason && method !== "GET") headers["x-qbull-reason"] = encodeURIComponent(reason);
  return headers;
}

export async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(url(path), {
      method,
      credentials: "same-origin",
      headers: headersOf(method, body),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: signal ?? AbortSignal.timeout(30_000),
      keepalive: method === "DELETE", // one that was held back is sent while the page is left
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, translated("the server cannot be reached"));
  }
  const text = await answer.text();
  const told = parsed(text);
  if (answer.ok || (told as { details?: unknown } | null)?.details !== undefined) return told as T;
  if (answer.status === 401 && path !== "api/login") lost();
  const detail = (told as { detail?: string } | null)?.detail;
  throw new Problem(answer.status, translated(detail || `${answer.status} ${answer.statusText}`));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

export const get = <T>(path: string, signal?: AbortSignal): Promise<T> => send<T>("GET", path, undefined, signal);
export const post = <T>(path: string, body?: unknown): Promise<T> => send<T>("POST", path, body);
export const put = <T>(path: string, body: unknown): Promise<T> => send<T>("PUT", path, body);
export const remove = <T>(path: string): Promise<T> => send<T>("DELETE", path);

const enc = encodeURIComponent;

/** Addresses in the API. */
export const at = {
  queue: (queue: string, rest = "") => `api/queues/${enc(queue)}${rest}`,
  job: (queue: string, id: string, rest = "") => `api/queues/${enc(queue)}/jobs/${enc(id)}${rest}`,
  key: (queue: string, key: string) => `api/queues/${enc(queue)}/keys/${enc(key)}`,
  schedule: (name: string, rest = "") => `api/schedules/${enc(name)}${rest}`,
};

export function query(values: Record<string, string | number | null | undefined>): string {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") said.set(name, String(value));
  }
  const text = said.toString();
  return text ? `?${text}` : "";
}
