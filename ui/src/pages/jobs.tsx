// Jobs of all queues and states, by one query. The address holds it; what is chosen can be dealt with, one by one or all that match.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, Problem, query as asQuery } from "../api";
import { useAsk } from "../ask";
import { count, timeOfDay } from "../format";
import { Bar, Button, Card, Head } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { queryOf } from "../query";
import { place, to } from "../route";
import { operator } from "../session";
import { t } from "../words";
import type { Facets, FoundJobs, Job } from "../wire";
import { Bulk } from "./jobs-bulk";
import { FacetRail } from "./jobs-facets";
import { OLD, QueryBar, SavedViews } from "./jobs-query";
import { chosenColumns, ColumnMenu, JobTable, nameOf } from "./jobs-table";

const PAGE = 50;

/** The query of the address, also of one from before there were queries. */
function queryOfPlace(): string {
  const said = place.value.query;
  return said.get("q") ?? queryOf(Object.fromEntries(OLD.map((name) => [name, said.get(name)])));
}

export function Jobs() {
  const q = queryOfPlace();
  const [error, setError] = useState<string | null>(null);
  const [round, setRound] = useState(0);
  const [listed, setListed] = useState<string | null>(null);
  // The list comes first: it is what people wait for, and both read the same jobs.
  const facets = useAsk<Facets>(error || listed !== q ? null : `api/jobs/facets${asQuery({ q })}`);
  useEffect(() => setError(null), [q]);
  useEffect(() => {
    if (round) void facets.again();
  }, [round]);
  return (
    <>
      <Head title={t("Jobs")}>
        <SavedViews query={q} />
      </Head>
      <QueryBar query={q} facets={facets.data} error={error} />
      <div class="jobs-view">
        <FacetRail query={q} facets={facets.data} />
        <List key={q} q={q} facets={facets.data} setError={setError} began={() => setListed(q)} reloaded={() => setRound((n) => n + 1)} />
      </div>
    </>
  );
}

interface Loaded {
  jobs: Job[];
  next: string | null;
  scanned: number;
  total: number;
  at: number;
}

interface ListProps {
  q: string;
  facets: Facets | undefined;
  setError: (error: string | null) => void;
  /** The first answer is there. */
  began: () => void;
  reloaded: () => void;
}

function List({ q, facets, setError, began, reloaded }: ListProps) {
  const { loaded, problem, busy, load, stop } = useSearch(q, setError, began);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [all, setAll] = useState(false);
  const [shown, setShown] = useState(chosenColumns);
  const clear = () => {
    setChosen(new Set());
    setAll(false);
  };
  const again = async () => {
    clear();
    reloaded();
    await load(false);
  };
  const picked = useMemo(() => loaded?.jobs.filter((job) => chosen.has(nameOf(job))) ?? [], [loaded, chosen]);
  if (!loaded) return <Card flush>{problem ? problem.status === 400 ? <Empty icon="search" title={t("This is not a query")} /> : <Failed error={problem} again={() => load(false)} /> : <Loading rows={12} />}</Card>;
  const more = loaded.next !== null;
  return (
    <Card flush>
      <div class="list-head">
        {picked.length > 0 && operator.value ? (
          <Bulk query={q} facets={facets} chosen={picked} all={all} whole={picked.length === loaded.jobs.length && more} setAll={setAll} clear={clear} then={again} />
        ) : (
          <>
            <span class="faint" role="status">
              {t("{n} job|{n} jobs", { n: loaded.jobs.length })}
              {more ? ` · ${t("{n} of {all} read", { n: count(loaded.scanned), all: count(loaded.total) })}` : ` · ${t("all {n} read", { n: count(loaded.total) })}`}
              {` · ${t("as of {time}", { time: timeOfDay(loaded.at) })}`}
            </span>
            {busy && more && <Bar value={loaded.scanned} of={loaded.total} label={t("Search progress")} />}
            <span class="push" />
            {busy ? more && <Button small icon="stop" onClick={stop}>{t("Stop")}</Button> : <Button kind="ghost" small icon="retry" label={t("Load again")} onClick={again} />}
            <ColumnMenu shown={shown} setShown={setShown} />
          </>
        )}
      </div>
      {loaded.jobs.length === 0 ? (
        busy || more ? (
          <Empty icon="search" title={busy ? t("Searching …") : t("Nothing was found so far")} />
        ) : (
          <Nothing q={q} />
        )
      ) : (
        <JobTable jobs={loaded.jobs} shown={shown} chosen={chosen} choose={operator.value ? (names) => { setChosen(names); setAll(false); } : undefined} />
      )}
      {more && !busy && (
        <div class="list-foot">
          <Button onClick={() => load(true)}>{loaded.jobs.length ? t("Show more") : t("Search further")}</Button>
        </div>
      )}
    </Card>
  );
}

/** Search in answers of a fraction of a second, until a page is full, all is read or somebody stops it. */
function useSearch(q: string, setError: (error: string | null) => void, began: () => void) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [busy, setBusy] = useState(false);
  const turn = useRef(0);
  const load = async (more: boolean) => {
    const mine = ++turn.current;
    const jobs = more ? [...(loaded?.jobs ?? [])] : [];
    const known = new Set(jobs.map(nameOf));
    const enough = jobs.length + PAGE;
    let cursor = more ? (loaded?.next ?? null) : null;
    setBusy(true);
    try {
      do {
        const told = await get<FoundJobs>(`api/jobs${asQuery({ q, limit: enough - jobs.length, cursor })}`);
        if (mine !== turn.current) return;
        for (const job of told.jobs) {
          if (!known.has(nameOf(job))) jobs.push(job); // it may have moved while the search went on
          known.add(nameOf(job));
        }
        cursor = told.next;
        setLoaded({ jobs: [...jobs], next: cursor, scanned: told.scanned, total: told.total, at: Date.now() });
        setProblem(null);
        setError(null);
        began();
      } while (cursor !== null && jobs.length < enough);
    } catch (why) {
      const said = why instanceof Problem ? why : new Problem(0, String(why));
      if (mine !== turn.current) return;
      setProblem(said);
      setError(said.message.replace(/^query: /, ""));
    } finally {
      if (mine === turn.current) setBusy(false);
    }
  };
  const stop = () => {
    turn.current++;
    setBusy(false);
  };
  useEffect(() => {
    void load(false);
    return () => {
      turn.current++;
    };
  }, []);
  return { loaded, problem, busy, load, stop };
}

function Nothing({ q }: { q: string }) {
  if (!q) return <Empty icon="jobs" title={t("There is no job yet")} />;
  return (
    <Empty icon="search" title={t("No job matches this query")}>
      <a class="button" href={to.search("")}>{t("Clear the query")}</a>
    </Empty>
  );
}
