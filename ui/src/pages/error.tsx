// One kind of error: since when, how often, in which tasks and with which arguments; retry one of its jobs, then all.
import { useState } from "preact/hooks";
import { at, post, query as asQuery } from "../api";
import { useAsk } from "../ask";
import { count, duration, moment, timeOfDay } from "../format";
import { changes } from "../live";
import { Ago, Button, Card, Copy, Figure, Head } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { Icon } from "../parts/icon";
import { doing } from "../parts/toast";
import { Traceback } from "../parts/traceback";
import { queryOf, term } from "../query";
import { place, to } from "../route";
import { operator } from "../session";
import { t, type Text } from "../words";
import type { ErrorHistory, ErrorMinute, Facet, Facets, FoundJobs, Job, Workers } from "../wire";
import { Acknowledge, KnownError } from "./error-known";
import { RetryAll } from "./error-retry";
import { JobTable } from "./jobs-table";

const DAY = 1440;
const SAMPLES = 8;

export function ErrorView() {
  const queue = place.value.query.get("queue") ?? "";
  const kind = place.value.query.get("kind") ?? "";
  const q = queryOf({ queue, state: "failed", fingerprint: kind });
  const told = useAsk<ErrorHistory>(at.queue(queue, `/errors/${encodeURIComponent(kind)}${asQuery({ minutes: DAY })}`), { every: 4000 });
  const found = useAsk<FoundJobs>(`api/jobs${asQuery({ q, limit: SAMPLES })}`, { every: 6000 });
  const facets = useAsk<Facets>(`api/jobs/facets${asQuery({ q })}`);
  const workers = useAsk<Workers>("api/workers");
  const [dialog, setDialog] = useState<"retry" | "acknowledge" | null>(null);
  const newest = found.data?.jobs[0];
  const gone = told.error?.status === 404; // its counts are older than those that are kept
  if (!told.data && !(gone && newest)) return told.error && (!gone || found.data) ? <Failed error={told.error} again={told.again} /> : <Loading rows={8} />;
  const error = told.data?.kind;
  const history = told.data?.history ?? [];
  const text = error?.lastError ?? newest?.error ?? "";
  const hour = history.filter((one) => Date.parse(one.at) > Date.now() - 3_600_000).reduce((sum, one) => sum + one.count, 0);
  return (
    <>
      <Head
        title={<span class="error-title">{text}</span>}
        back={<><a href={to.dead()}>{t("Dead letters")}</a> <Icon name="right" size={11} /> <a href={to.queue(queue)}>{queue}</a></>}
        under={<span class="mono faint">{kind} <Copy text={term("fingerprint", kind)} label={t("Copy as a query")} /></span>}
      >
        <a class="button" href={to.search(q)}><Icon name="jobs" />{t("All its jobs")}</a>
        {operator.value && error && <Button icon="check" onClick={() => setDialog("acknowledge")}>{t("Acknowledge …")}</Button>}
        {operator.value && newest && <Button icon="retry" onClick={() => retryOne(newest)}>{t("Retry one as a test")}</Button>}
        {operator.value && newest && <Button kind="primary" icon="retry" onClick={() => setDialog("retry")}>{t("Retry all …")}</Button>}
      </Head>
      <KnownError queue={queue} kind={kind} known={error?.acknowledged} />
      {error && <div class="figures">
        <Figure label={t("In the last hour")} value={count(hour)} tone={hour ? "bad" : ""} />
        <Figure label={t("In 24 hours")} value={count(error.count)} />
        <Figure label={t("First seen")} value={<Ago at={error.firstAt} />} note={moment(error.firstAt)} />
        <Figure label={t("Last seen")} value={<Ago at={error.lastAt} />} note={moment(error.lastAt)} />
      </div>}
      {error && <Card title={t("Failures in 24 hours")} aside={<span class="faint">{t("counted as they happen: {n} since {when}", { n: error.total, when: moment(error.firstAt) })}</span>}>
        <History minutes={history} />
      </Card>}
      <div class="columns error-columns">
        <div class="stack">
          {newest?.stacktrace && (
            <Card title={t("Newest traceback")} aside={<><a href={to.job(queue, newest.id)}><Ago at={newest.finishedAt} /></a> <Copy text={newest.stacktrace} /></>}>
              <Traceback text={newest.stacktrace} />
            </Card>
          )}
          <Card title={t("Sample jobs")} flush>
            {found.data?.jobs.length ? <JobTable jobs={found.data.jobs} shown={["id", "key", "payload", "attempt", "took", "when"]} /> : found.data ? <Empty title={t("None of its jobs is a dead letter now")} /> : found.error ? <Failed error={found.error} /> : <Loading rows={4} />}
          </Card>
        </div>
        <Causes facets={facets.data} workers={workers.data} q={q} />
      </div>
      {dialog === "retry" && <RetryAll queue={queue} kind={kind} error={text} matched={facets.data} onClose={() => setDialog(null)} />}
      {dialog === "acknowledge" && <Acknowledge queue={queue} kind={kind} error={text} onClose={() => { setDialog(null); told.again(); }} />}
    </>
  );
}

const heads: Record<string, Text> = { task: "Task", worker: "Worker" };

/** What the jobs have in common. */
function Causes({ facets, workers, q }: { facets: Facets | undefined; workers: Workers | undefined; q: string }) {
  const shown = facets?.facets.filter((one) => one.values.length > 0 && (one.field in heads || one.field.startsWith("args."))) ?? [];
  return (
    <Card title={t("In common")} note={facets && (facets.scanned < facets.total ? t("~ counted in a sample: {n} of {all} jobs read", { n: count(facets.scanned), all: count(facets.total) }) : t("of {n} dead letter|of {n} dead letters", { n: facets.matched }))}>
      {facets ? shown.map((one) => <Shares key={one.field} facet={one} of={facets.matched} q={q} />) : <Loading rows={6} />}
      {facets && <Versions workers={workers} facet={facets.facets.find((one) => one.field === "worker")} of={facets.matched} />}
    </Card>
  );
}

/** The versions of the workers that ran them. Jobs do not store them, so they are those of workers that are still known. */
function Versions({ workers, facet, of }: { workers: Workers | undefined; facet: Facet | undefined; of: number }) {
  const versions = new Map([...(workers?.lost ?? []), ...(workers?.workers ?? [])].map((one) => [one.id, one.version]));
  const sums = new Map<string, number>();
  for (const one of facet?.values ?? []) {
    const version = versions.get(one.value);
    if (version) sums.set(version, (sums.get(version) ?? 0) + one.count);
  }
  if (!workers || of === 0) return null;
  const known = [...sums.values()].reduce((a, b) => a + b, 0);
  return (
    <div class="shares">
      <h3>{t("Version of the worker")}</h3>
      <p class="faint">{t("known for {n} of {all} jobs: jobs do not store it, and only live workers and those lost in the last day tell it", { n: known, all: of })}</p>
      <ul>
        {[...sums].sort((a, b) => b[1] - a[1]).map(([version, n]) => (
          <li key={version}>
            <span class="cut mono">{version}</span>
            <span class="num">{Math.round((100 * n) / Math.max(of, 1))} %</span>
            <i style={{ width: `${(100 * n) / Math.max(of, 1)}%` }} />
          </li>
        ))}
      </ul>
    </div>
  );
}

function Shares({ facet, of, q }: { facet: Facet; of: number; q: string }) {
  const distinct = facet.values.every((one) => one.count === 1) && facet.values.length > 3;
  return (
    <div class="shares">
      <h3>{heads[facet.field] ? t(heads[facet.field] as Text) : <span class="mono">{facet.field}</span>}</h3>
      {distinct ? (
        <p class="faint">{t("different in every job")}</p>
      ) : (
        <ul>
          {facet.values.slice(0, 4).map((one) => (
            <li key={one.value}>
              <a class="cut mono" href={to.search(`${q} ${term(facet.field, one.value)}`)} title={one.value}>{one.value}</a>
              <span class="num">{Math.round((100 * one.count) / Math.max(of, 1))} %</span>
              <i style={{ width: `${(100 * one.count) / Math.max(of, 1)}%` }} />
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

const BARS = 96; // a quarter of an hour each

function History({ minutes }: { minutes: ErrorMinute[] }) {
  const width = (DAY * 60_000) / BARS;
  const end = Math.ceil(Date.now() / width) * width;
  const bars = Array.from({ length: BARS }, () => 0);
  for (const one of minutes) {
    const n = BARS - 1 - Math.floor((end - 1 - Date.parse(one.at)) / width);
    if (n >= 0 && n < BARS) bars[n] = (bars[n] ?? 0) + one.count;
  }
  const most = Math.max(1, ...bars);
  return (
    <figure class="error-history">
      <span class="faint">{count(most)}</span>
      <svg viewBox={`0 0 ${BARS * 4} 60`} preserveAspectRatio="none" role="img" aria-label={t("{n} failure in 24 hours|{n} failures in 24 hours", { n: bars.reduce((a, b) => a + b, 0) })}>
        {bars.map((n, at) => n > 0 && (
          <rect key={at} x={at * 4} y={60 - (n / most) * 58 - 2} width={3} height={(n / most) * 58 + 2}>
            <title>{`${timeOfDay(end - (BARS - at) * width)} · ${count(n)}`}</title>
          </rect>
        ))}
      </svg>
      <figcaption class="faint"><span>{t("{time} ago", { time: duration(DAY * 60_000) })}</span><span>{t("now")}</span></figcaption>
    </figure>
  );
}

async function retryOne(job: Job): Promise<void> {
  await doing(() => post(at.job(job.queue, job.id, "/retry")), t("One job runs again; look how it ends before you retry the rest"), { link: { text: t("Open it"), href: to.job(job.queue, job.id) } });
  changes.value++;
}
