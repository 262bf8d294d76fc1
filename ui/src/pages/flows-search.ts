// The flows on show: those that run or ended lately, kept up to date, and what a search of all flows has found.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, Problem, query as asQuery } from "../api";
import { useAsk } from "../ask";
import type { Flows as Told, ShownFlow } from "../wire";

const PAGE = 25;

export interface FlowSearch {
  flows: ShownFlow[] | null;
  problem: Problem | null;
  busy: boolean;
  scanned: number;
  total: number;
  /** Whether there may be more. */
  more: boolean;
  load: () => Promise<void>;
  stop: () => void;
  again: () => Promise<void>;
}

interface Found {
  of: string;
  flows: ShownFlow[];
  scanned: number;
  total: number;
  next: string | null;
}

export function useFlowSearch(find: string, state: string): FlowSearch {
  const listed = useAsk<Told>("api/flows", { every: 2500 });
  const [found, setFound] = useState<Found | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);
  const of = `${state} ${find}`;
  const filtered = find.trim() !== "" || state !== "";
  const mine = found?.of === of ? found : null;

  const load = async (further: boolean) => {
    const now = ++turn.current;
    const flows = new Map((further ? mine?.flows : filtered ? [] : listed.data?.flows)?.map((one) => [one.flow, one]));
    const enough = flows.size + PAGE;
    let cursor = (further && mine?.next) || (filtered ? null : (listed.data?.next ?? null));
    setBusy(true);
    try {
      do {
        const told: Told = await get<Told>(`api/flows${asQuery({ find: find.trim(), state, cursor })}`);
        if (now !== turn.current) return;
        for (const one of told.flows) flows.set(one.flow, one);
        cursor = told.next ?? null;
        setFound({ of, flows: [...flows.values()], scanned: told.scanned ?? 0, total: told.total ?? 0, next: cursor });
        setProblem(null);
      } while (cursor !== null && flows.size < enough);
    } catch (why) {
      if (now === turn.current) setProblem(why instanceof Problem ? why : new Problem(0, String(why)));
    } finally {
      if (now === turn.current) setBusy(false);
    }
  };
  const stop = () => {
    turn.current++;
    setBusy(false);
  };
  useEffect(() => {
    stop();
    if (!filtered) return;
    const timer = setTimeout(() => void load(false), 250); // somebody may still be typing
    return () => clearTimeout(timer);
  }, [of]);
  useEffect(() => stop, []);

  const all = new Map(mine?.flows.map((one) => [one.flow, one]));
  for (const one of listed.data?.flows ?? []) all.set(one.flow, one); // they are newer than a search
  const flows = [...all.values()].filter((one) => (!state || one.state === state) && matches(one, find)).sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
  return {
    flows: listed.data ? flows : null,
    problem: problem ?? listed.error,
    busy,
    scanned: mine?.scanned ?? 0,
    total: mine?.total ?? 0,
    more: mine ? mine.next !== null : !filtered && (listed.data?.flows.length ?? 0) > 0,
    load: () => load(mine !== null),
    stop,
    again: async () => {
      await listed.again();
      if (mine) await load(false);
    },
  };
}

function matches(one: ShownFlow, wanted: string): boolean {
  const text = [one.first, one.task, one.about, one.flow, ...one.steps.flatMap((step) => [step.id, `${step.queue}/${step.task}`])].join(" ").toLowerCase();
  return wanted
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
