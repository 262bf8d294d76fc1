// Ask: what a view shows of the API. The last answer stays while the next one comes, so that nothing jumps.
import { signal } from "@preact/signals";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { get, Problem } from "./api";
import { changes, link } from "./live";

export interface Answer<T> {
  data: T | undefined;
  error: Problem | null;
  /** The answer on show belongs to an earlier question, or there is none yet. */
  waiting: boolean;
  again: () => Promise<void>;
}

export interface Unrefreshed {
  /** When the last answer came. */
  since: number;
  why: string;
}

/** The oldest answer on show whose question was refused again and again since. */
export const unrefreshed = signal<Unrefreshed | null>(null);
const refused = new Map<object, Unrefreshed>();
const SOME_REFUSALS = 2; // one alone is no news: the next question comes in seconds

function note(who: object, problem: Unrefreshed | null): void {
  if (problem) refused.set(who, problem);
  else if (!refused.delete(who)) return;
  unrefreshed.value = [...refused.values()].sort((a, b) => a.since - b.since)[0] ?? null;
}

const kept = new Map<string, unknown>();

export function forgetAll(): void {
  kept.clear();
}

/** `every`: ask again after so many milliseconds where something has happened, or the stream is away. */
export function useAsk<T>(path: string | null, { every = 0, always = false } = {}): Answer<T> {
  const [state, set] = useState<{ path: string | null; data: T | undefined; error: Problem | null }>({
    path: null,
    data: undefined,
    error: null,
  });
  const current = useRef(path);
  current.current = path;
  const seen = useRef(-1);
  const mine = useRef({ answeredAt: 0, refusals: 0 });

  const again = useCallback(async () => {
    if (path === null) return;
    seen.current = changes.peek();
    try {
      const data = await get<T>(path);
      kept.set(path, data);
      if (kept.size > 100) kept.delete(kept.keys().next().value as string);
      if (current.current !== path) return;
      mine.current = { answeredAt: Date.now(), refusals: 0 };
      note(mine, null);
      set({ path, data, error: null });
    } catch (error) {
      const problem = error instanceof Problem ? error : new Problem(0, String(error));
      if (current.current !== path) return;
      const { answeredAt, refusals } = mine.current;
      mine.current.refusals++;
      if (answeredAt && refusals + 1 >= SOME_REFUSALS) note(mine, { since: answeredAt, why: problem.message });
      set((before) => ({ path, data: before.path === path ? before.data : undefined, error: problem }));
    }
  }, [path]);

  useEffect(
    () => () => {
      mine.current = { answeredAt: 0, refusals: 0 };
      note(mine, null);
    },
    [path],
  );

  useEffect(() => {
    void again();
    if (!every) return;
    const timer = setInterval(() => {
      if (document.hidden || link.peek() === "paused") return;
      if (always || link.peek() !== "live" || changes.peek() !== seen.current) void again();
    }, every);
    return () => clearInterval(timer);
  }, [again, every, always]);

  if (path !== null && state.path !== path && kept.has(path)) {
    return { data: kept.get(path) as T, error: null, waiting: true, again };
  }
  return { data: state.data, error: state.path === path ? state.error : null, waiting: path !== null && state.path !== path, again };
}
