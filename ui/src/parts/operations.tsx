// Operations: work on many jobs that the server does, and how far it is. They go on when the page is closed.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, post } from "../api";
import { count } from "../format";
import { changes } from "../live";
import { operator } from "../session";
import { t, translated, type Text } from "../words";
import type { OneOperation, Operation, Operations as Told, Started } from "../wire";
import { Bar, Button } from "./basics";
import { Icon } from "./icon";
import { doing } from "./toast";

const EVERY = 600;
const AT_ONCE = 6;
const MINE = "here-";
const shown = signal<Operation[]>([]);
const waiting = new Map<string, (operation: Operation) => void>();

/** Begin one and show it; gives how it ended. */
export async function operate(queue: string, body: Record<string, unknown>): Promise<Operation> {
  const started = await post<Started>(`api/queues/${encodeURIComponent(queue)}/operations`, body);
  const { operation } = await get<OneOperation>(`api/operations/${started.operationId}`);
  shown.value = [...shown.value, operation];
  return new Promise((then) => waiting.set(operation.id, then));
}

/** Do something to some jobs from here, one after the other, and show how far that is. */
/** The action in words: a redrive is a retry of dead letters. */
export function actionText(action: string): string {
  return t((action === "redrive" ? "retry" : action) as Text);
}

export async function each(action: string, queue: string, ids: string[], act: (id: string) => Promise<unknown>): Promise<{ done: number; error: string | null }> {
  const at = new Date().toISOString();
  const name = `${MINE}${at}`;
  const left = [...ids];
  let now: Operation = { id: name, action, queue, filter: {}, by: "", startedAt: at, updatedAt: at, done: 0, lookedAt: 0, total: ids.length, state: "running", error: null, refused: 0, refusal: null };
  const show = (part: Partial<Operation>) => {
    now = { ...now, ...part };
    shown.value = [...shown.value.filter((one) => one.id !== name), now];
  };
  show({});
  const next = async (): Promise<void> => {
    for (let id = left.pop(); id !== undefined; id = left.pop()) {
      await act(id).then(
        () => show({ done: now.done + 1, lookedAt: now.lookedAt + 1 }),
        (why: Error) => show({ error: why.message, lookedAt: now.lookedAt + 1 }),
      );
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  show({ state: now.error ? "failed" : "done" });
  setTimeout(() => close(name), now.error ? 20_000 : 6000);
  return { done: now.done, error: now.error };
}

/** Those that run already, whoever began them. */
async function join(): Promise<void> {
  const told = await get<Told>("api/operations").catch(() => null);
  const known = new Set(shown.value.map((one) => one.id));
  const running = told?.operations.filter((one) => one.state === "running" && !known.has(one.id)) ?? [];
  if (running.length) shown.value = [...shown.value, ...running];
}

async function follow(): Promise<void> {
  for (const one of shown.value.filter((each) => !each.id.startsWith(MINE) && (each.state === "running" || waiting.has(each.id)))) {
    const told = await get<OneOperation>(`api/operations/${one.id}`).catch(() => null);
    if (!told) continue;
    shown.value = shown.value.map((each) => (each.id === one.id ? told.operation : each));
    if (told.operation.state !== "running") {
      waiting.get(one.id)?.(told.operation);
      waiting.delete(one.id);
      changes.value++;
      setTimeout(() => close(one.id), told.operation.state === "done" ? 6000 : 20_000);
    }
  }
}

function close(id: string): void {
  shown.value = shown.value.filter((one) => one.id !== id);
}

export function Operations() {
  const any = shown.value.length > 0;
  useEffect(() => {
    void join();
  }, []);
  useEffect(() => {
    if (!any) return;
    void follow();
    const timer = setInterval(() => void follow(), EVERY);
    return () => clearInterval(timer);
  }, [any]);
  if (!any) return null;
  return (
    <section class="operations" aria-label={t("Bulk operations")} role="status">
      {shown.value.map((one) => (
        <div class="operation" key={one.id}>
          <div class="operation-head">
            <b>{actionText(one.action)}</b>
            <span class="faint">{one.queue}</span>
            <span class="push">{t("{n} job|{n} jobs", { n: one.done })}</span>
            {one.state === "running" ? (
              operator.value && !one.id.startsWith(MINE) && <Button kind="ghost" small icon="stop" label={t("Stop")} onClick={() => doing(() => post(`api/operations/${one.id}/stop`), t("It is being stopped"))} />
            ) : (
              <Button kind="ghost" small icon="close" label={t("Close")} onClick={() => close(one.id)} />
            )}
          </div>
          <Bar value={one.state === "done" ? 1 : one.lookedAt} of={one.state === "done" ? 1 : (one.total ?? 0)} label={actionText(one.action)} tone={one.state === "failed" ? "bad" : "good"} />
          <small class="faint">
            {one.state === "done" ? (
              <>
                <Icon name="check" size={12} /> {t("done")}
              </>
            ) : one.error ? (
              translated(one.error)
            ) : (
              t("looked at {n} of {all}", { n: count(one.lookedAt), all: one.total === null ? "?" : count(one.total) })
            )}
          </small>
        </div>
      ))}
    </section>
  );
}
