// Jobs of one queue and state, by filter. The address holds the filter; what is chosen can be dealt with, one by one or all that match.
import { useEffect, useMemo, useState } from "preact/hooks";
import { at, get, query } from "../api";
import { useAsk } from "../ask";
import { count, short } from "../format";
import { queues } from "../live";
import { Button, Card, Head, STATES, type State, stateIcon } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { Icon } from "../parts/icon";
import { say } from "../parts/toast";
import { go, place, refine, to } from "../route";
import { operator } from "../session";
import { t } from "../words";
import type { AllStats, Job, Jobs as Told } from "../wire";
import { Bulk } from "./jobs-bulk";
import { Filters, filtersOf, type JobFilter } from "./jobs-filter";
import { JobTable } from "./jobs-table";

const FIRST: State[] = ["waiting", "active", "failed", "delayed", "completed"];
const PAGE = 50;
const MOST = 1000;
const SEARCH_MS = 3000;

export function Jobs() {
  const asked = useAsk<AllStats>(queues.value ? null : "api/queues/stats");
  const now = queues.value ?? asked.data?.queues;
  const names = Object.keys(now ?? {}).sort();
  const said = place.value.query;
  const queue = said.get("queue") ?? (names.find((name) => now?.[name]?.total) || names[0]) ?? "";
  const named = (STATES as readonly string[]).includes(said.get("state") ?? "") ? (said.get("state") as State) : null;
  const first = useMemo(() => FIRST.find((one) => now?.[queue]?.[one]) ?? "waiting", [queue, now === undefined]); // where there is something
  const state = named ?? first;
  const filter = useMemo(() => filtersOf(said), [said]);
  if (!now) return asked.error ? <Failed error={asked.error} again={asked.again} /> : <Loading rows={10} />;
  const stats = now[queue];
  return (
    <>
      <Head title={t("Jobs")}>
        <div class="search">
          <select aria-label={t("Queue")} value={queue} onInput={(event) => go(to.jobs(event.currentTarget.value, state, filter))}>
            {!names.includes(queue) && <option value={queue}>{queue}</option>}
            {names.map((name) => (
              <option key={name} value={name} selected={name === queue}>{name}</option>
            ))}
          </select>
        </div>
      </Head>
      <div class="tabs" role="group" aria-label={t("State")} ref={(tabs) => tabs?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" })}>
        {STATES.map((one) => (
          <a key={one} href={to.jobs(queue, one, filter)} aria-current={one === state ? "true" : undefined} class={`state-${one}`}>
            <Icon name={stateIcon(one)} size={14} />
            {t(one)}
            <span class="tab-count">{stats ? short(stats[one]) : ""}</span>
          </a>
        ))}
      </div>
      {names.length === 0 && !queue ? (
        <Card>
          <Empty icon="queues" title={t("There is no queue yet")} />
        </Card>
      ) : (
        <List key={`${queue}/${state}/${JSON.stringify(filter)}`} queue={queue} state={state} filter={filter} total={stats?.[state] ?? 0} />
      )}
    </>
  );
}

function addressOf(queue: string, state: State, filter: JobFilter, have: number, cursor: string | null): string {
  const plain = Object.keys(filter).length === 0;
  if (plain && (state === "waiting" || state === "active" || state === "delayed")) {
    return at.queue(queue, `/jobs${query({ state, start: 0, end: Math.min(have + PAGE, MOST) - 1 })}`); // in the order in which they will run
  }
  return at.queue(queue, `/jobs${query({ state, ...filter, limit: PAGE, cursor })}`);
}

interface Loaded {
  jobs: Job[];
  next: string | null;
  /** The count of the state when this was loaded: another count means another list. */
  total: number;
}

function List({ queue, state, filter, total }: { queue: string; state: State; filter: JobFilter; total: number }) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const { id, ...asked } = filter;
  const live = Object.keys(filter).length === 0 && (state === "waiting" || state === "active" || state === "delayed");

  const load = async (more: boolean) => {
    setBusy(true);
    try {
      if (id) {
        const one = await get<Job>(at.job(queue, id)).catch(() => null);
        setLoaded({ jobs: one ? [one] : [], next: null, total });
        return;
      }
      const have = more ? (loaded?.jobs.length ?? 0) : live ? Math.max((loaded?.jobs.length ?? 0) - PAGE, 0) : 0;
      const before = more && !live ? (loaded?.jobs ?? []) : [];
      const found: Job[] = [];
      let cursor = more ? (loaded?.next ?? null) : null;
      const until = Date.now() + SEARCH_MS;
      do {
        const told = await get<Told>(addressOf(queue, state, asked, have, cursor));
        found.push(...told.jobs);
        cursor = told.next ?? (live && told.jobs.length >= have + PAGE && have + PAGE < MOST ? "more" : null);
        setLoaded({ jobs: [...before, ...found], next: cursor, total });
        setError(null);
      } while (!live && cursor !== null && found.length < PAGE && Date.now() < until); // an answer looks at some thousand jobs only
    } catch (why) {
      setError(why as Error);
      if (more) say((why as Error).message, { bad: true });
    } finally {
      setBusy(false);
    }
  };
  useEffect(() => {
    void load(false);
  }, []);
  const again = async () => {
    setChosen(new Set());
    setAll(false);
    await load(false);
  };

  const changed = loaded !== null && total !== loaded.total;
  return (
    <>
      <Filters queue={queue} state={state} filter={filter} />
      <Card flush>
        {error && !loaded ? (
          <Failed error={error as never} again={() => load(false)} />
        ) : !loaded ? (
          <Loading rows={10} />
        ) : (
          <>
            <div class="list-head">
              {chosen.size > 0 && operator.value ? (
                <Bulk queue={queue} state={state} filter={asked} chosen={chosen} all={all} shown={loaded.jobs.length} more={loaded.next !== null} setAll={setAll} clear={() => { setChosen(new Set()); setAll(false); }} then={again} />
              ) : (
                <>
                  <span class="faint">
                    {loaded.next !== null ? t("the first {n}", { n: loaded.jobs.length }) : t("{n} job|{n} jobs", { n: loaded.jobs.length })}
                    {state === "waiting" || state === "delayed" || state === "active" ? "" : ` · ${t("the newest first")}`}
                  </span>
                  <span class="push" />
                  {changed && (
                    <button type="button" class="pill" onClick={() => void again()}>
                      {total > loaded.total ? t("{n} more – show|{n} more – show", { n: total - loaded.total }) : t("The list has changed – show")}
                    </button>
                  )}
                  <Button kind="ghost" small icon="retry" label={t("Load again")} onClick={again} />
                </>
              )}
            </div>
            {loaded.jobs.length === 0 ? (
              busy || loaded.next !== null ? (
                <Empty icon="search" title={busy ? t("Searching …") : t("Nothing was found so far")} />
              ) : (
                <Nothing state={state} filtered={Object.keys(filter).length > 0} />
              )
            ) : (
              <JobTable jobs={loaded.jobs} state={state} chosen={chosen} choose={operator.value ? (ids) => { setChosen(ids); setAll(false); } : undefined} />
            )}
            {loaded.next !== null && (
              <div class="list-foot">
                <Button onClick={() => load(true)} disabled={busy}>{loaded.jobs.length ? t("Show more") : t("Search further")}</Button>
                {live && total > MOST && <span class="faint">{t("of {n}; a filter finds the others", { n: count(total) })}</span>}
              </div>
            )}
          </>
        )}
      </Card>
    </>
  );
}

function Nothing({ state, filtered }: { state: State; filtered: boolean }) {
  if (filtered) {
    return (
      <Empty icon="search" title={t("No job fits this filter")}>
        <Button onClick={() => refine(Object.fromEntries([...place.value.query.keys()].filter((name) => name !== "queue" && name !== "state").map((name) => [name, null])))}>{t("Without filter")}</Button>
      </Empty>
    );
  }
  return <Empty icon={stateIcon(state)} title={t("No job is {state}", { state: t(state) })} />;
}
