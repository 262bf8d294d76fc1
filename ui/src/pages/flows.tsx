// Flows: jobs that wait for each other, those under way, those that ended lately, and a search of all that are kept. Found by words and state, retried and cancelled as a whole.
import { clock, count, duration } from "../format";
import { Ago, Bar, Button, Card, Head, Tag } from "../parts/basics";
import { Empty, Failed, Loading } from "../parts/blank";
import { Choice } from "../parts/field";
import { FlowLine, notRun } from "../parts/flow";
import { place, refine, to } from "../route";
import { operator } from "../session";
import { t } from "../words";
import type { ShownFlow } from "../wire";
import { FlowButtons } from "./flow-actions";
import { type FlowSearch, useFlowSearch } from "./flows-search";

const tones = { running: "accent", completed: "good", rescued: "warn", failed: "bad", cancelled: "plain" } as const;
const states = ["running", "completed", "rescued", "failed", "cancelled"] as const;

export function Flows() {
  const wanted = place.value.query.get("find") ?? "";
  const state = place.value.query.get("state") ?? "";
  const search = useFlowSearch(wanted, state);
  return (
    <>
      <Head title={t("Flows")} under={t("Jobs that wait for other jobs: one after the other, or all of a group before the next.")}>
        <div class="search" data-filter>
          <input type="search" aria-label={t("Find a flow")} placeholder={t("Task, argument or id")} value={wanted} onInput={(event) => refine({ find: event.currentTarget.value }, { replace: true })} />
        </div>
      </Head>
      <Choice label={t("State")} value={state} options={[["", t("all")], ...states.map((one): [string, string] => [one, t(one)])]} onPick={(one) => refine({ state: one })} />
      <Card flush>
        {search.flows ? <List search={search} filtered={wanted !== "" || state !== ""} /> : search.problem ? <Failed error={search.problem} again={search.again} /> : <Loading rows={6} />}
      </Card>
    </>
  );
}

function List({ search, filtered }: { search: FlowSearch; filtered: boolean }) {
  const shown = search.flows ?? [];
  return (
    <>
      {(filtered || search.total > 0) && (
        <div class="list-head">
          <span class="faint" role="status">
            {t("{n} flow|{n} flows", { n: shown.length })}
            {search.total > 0 && ` · ${search.more || search.busy ? t("{n} of {all} read", { n: count(search.scanned), all: count(search.total) }) : t("all {n} read", { n: count(search.total) })}`}
          </span>
          {search.busy && <Bar value={search.scanned} of={search.total} label={t("Search progress")} />}
          <span class="push" />
          {search.busy && <Button small icon="stop" onClick={search.stop}>{t("Stop")}</Button>}
        </div>
      )}
      {search.problem && <Failed error={search.problem} again={search.again} />}
      {shown.length === 0 ? (
        <Empty icon="flows" title={search.busy ? t("Searching …") : filtered ? t("No flow matches") : t("There are no flows")}>
          {filtered ? null : t("Chains and groups of jobs appear here while they run, and for a while after.")}
        </Empty>
      ) : (
        <Table flows={shown} then={search.again} />
      )}
      {search.more && !search.busy && (
        <div class="list-foot">
          <Button onClick={search.load}>{filtered ? t("Search further") : t("Show older ones")}</Button>
        </div>
      )}
    </>
  );
}

function Table({ flows, then }: { flows: ShownFlow[]; then: () => Promise<void> }) {
  return (
    <div class="scroll">
      <table class="dense flows">
        <thead>
          <tr>
            <th>{t("Flow")}</th>
            <th>{t("State")}</th>
            <th class="grow">{t("Jobs")}</th>
            <th class="num">{t("completed")}</th>
            <th class="num">{t("Started")}</th>
            <th class="num">{t("Took")}</th>
            {operator.value && <th><span class="unseen">{t("Actions")}</span></th>}
          </tr>
        </thead>
        <tbody>
          {flows.map((one) => (
            <Row key={one.flow} one={one} then={then} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ one, then }: { one: ShownFlow; then: () => Promise<void> }) {
  const all = Object.values(one.counts).reduce((sum, n) => sum + n, 0);
  const unrun = notRun(one.steps);
  const failed = (one.counts.failed ?? 0) - unrun;
  const end = one.finishedAt ? Date.parse(one.finishedAt) : clock.value;
  return (
    <tr data-row tabIndex={-1}>
      <td class="flow-name">
        <a href={to.job(one.queue, one.id)}>
          <span class="strong cut">{one.first === one.task ? one.task : `${one.first} → ${one.task}`}</span>
          <small class="faint cut" title={one.about ?? undefined}>{one.about ?? one.flow.slice(0, 8)}</small>
        </a>
      </td>
      <td data-label={t("State")}>
        <Tag tone={tones[one.state]}>{t(one.state)}</Tag>
      </td>
      <td class="grow">
        <FlowLine steps={one.steps} />
      </td>
      <td class="num flow-ends" data-label={t("completed")}>
        <span class="nowrap">{t("{n} of {all}", { n: one.counts.completed ?? 0, all: one.more ? `${all}+` : all })}</span>
        {failed > 0 && <small class="bad-text nowrap"> · {count(failed)} {t("failed")}</small>}{" "}
        {unrun > 0 && <small class="faint nowrap"> · {count(unrun)} {t("not run")}</small>}
      </td>
      <td class="num" data-label={t("Started")}>
        <Ago at={one.createdAt} />
      </td>
      <td class="num nowrap" data-label={t("Took")}>{duration(Math.max(0, end - Date.parse(one.createdAt)))}</td>
      {operator.value && (
        <td class="num row-actions">
          <FlowButtons queue={one.queue} id={one.id} counts={one.counts} then={then} />
        </td>
      )}
    </tr>
  );
}
