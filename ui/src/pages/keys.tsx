// Keys: the lane of one key, its head, and what to do if the head is a dead letter; without a key, the longest and the halted lanes.
import { useState } from "preact/hooks";
import { at, post, remove } from "../api";
import { useAsk } from "../ask";
import { count } from "../format";
import { queues } from "../live";
import { Ago, Button, Card, Head, StateBadge, Tag } from "../parts/basics";
import { Empty, Failed, Loading, Shown } from "../parts/blank";
import { confirm } from "../parts/dialog";
import { Field, Select } from "../parts/field";
import { Icon } from "../parts/icon";
import { doing } from "../parts/toast";
import { go, place, to } from "../route";
import { admin, operator } from "../session";
import { t } from "../words";
import type { Key, Partitions } from "../wire";
import { JobTable } from "./jobs-table";

export function Keys() {
  const said = place.value.query;
  const queue = said.get("queue") ?? "";
  const key = said.get("key") ?? "";
  return (
    <>
      <Head title={t("Keys")} under={t("Jobs with the same key run in order: each waits for the one before it.")} />
      <Ask key={queue + key} queue={queue} keyNow={key} />
      {queue && key ? <Lane queue={queue} keyName={key} /> : <Lanes only={queue} />}
    </>
  );
}

/** The queues whose jobs can wait for each other, or all, as long as that is not known. */
function namesWithLanes(): string[] {
  return Object.values(queues.value ?? {})
    .filter((one) => one.hasLanes !== false)
    .map((one) => one.name)
    .sort();
}

function Ask({ queue, keyNow }: { queue: string; keyNow: string }) {
  const names = namesWithLanes();
  const [in_, setIn] = useState(queue);
  const [text, setText] = useState(keyNow);
  const where = in_ || names[0] || "";
  return (
    <Card>
      <form
        class="fields key-form"
        data-filter
        onSubmit={(event) => {
          event.preventDefault();
          go(to.keys(where, text.trim()));
        }}
      >
        <Select label={t("Queue")} value={where} onInput={setIn} options={(names.includes(where) || !where ? names : [where, ...names]).map((one) => [one, one])} />
        <Field label={t("Key")} value={text} onInput={setText} placeholder="account-17" mono required />
        <div class="filter-go">
          <button type="submit" class="button primary">{t("Show the lane")}</button>
        </div>
      </form>
    </Card>
  );
}

function Lane({ queue, keyName }: { queue: string; keyName: string }) {
  const asked = useAsk<Key>(at.key(queue, keyName), { every: 2000 });
  return (
    <Shown answer={asked} rows={6}>
      {(told) => (
        <>
          <Card
            title={
              <>
                <span class="mono">{told.key}</span> {told.halted && <Tag tone="bad">{t("halted")}</Tag>}
              </>
            }
            aside={
              <span class="faint">
                {queue} · {t("partition {n}", { n: told.partition })}
              </span>
            }
          >
            {told.halted && told.holder && <Halted told={told} queue={queue} then={asked.again} />}
            {told.holder ? (
              <div class="holder">
                <span class="holder-label">{t("At the head")}</span>
                <StateBadge state={told.holder.state} />
                <a class="strong" href={to.job(queue, told.holder.id)}>{told.holder.task}</a>
                <span class="mono faint cut">{told.holder.id}</span>
                <span class="push faint">
                  <Ago at={told.holder.startedAt ?? told.holder.createdAt} />
                </span>
              </div>
            ) : (
              <p class="faint">{t("Nothing holds this lane: the next job of this key starts at once.")}</p>
            )}
          </Card>
          <Card title={t("Behind it")} aside={<span class="faint">{t("{n} waiting", { n: told.waiting })}</span>} flush>
            {told.jobs.length ? <JobTable jobs={told.jobs} shown={["id", "payload", "priority", "attempt", "created"]} /> : <Empty title={t("No job waits in this lane")} />}
          </Card>
        </>
      )}
    </Shown>
  );
}

function Halted({ told, queue, then }: { told: Key; queue: string; then: () => Promise<void> }) {
  const head = told.holder;
  if (!head) return null;
  return (
    <div class="notice bad">
      <Icon name="dead" />
      <div class="grow">
        <b>{t("This lane is halted: the job at its head is a dead letter.")}</b>
        {head.error && <p class="error-text">{head.error}</p>}
        {operator.value && (
          <div class="notice-actions">
            <Button
              small
              kind="primary"
              icon="retry"
              onClick={async () => {
                if (await doing(() => post(at.job(queue, head.id, "/retry")), t("It was enqueued again"))) await then();
              }}
            >
              {t("Retry the head")}
            </Button>
            {admin.value && <Button
              small
              kind="danger"
              icon="trash"
              onClick={() =>
                confirm({
                  title: t("Skip the head of this lane?"),
                  text: t("The dead letter is removed and the next job starts. This cannot be undone."),
                  action: t("Skip it"),
                  danger: true,
                  submit: async () => {
                    await remove(at.job(queue, head.id));
                    await then();
                  },
                })
              }
            >
              {t("Skip it")}
            </Button>}
          </div>
        )}
      </div>
    </div>
  );
}

function Lanes({ only }: { only: string }) {
  const names = namesWithLanes().filter((name) => !only || name === only);
  const [found, setFound] = useState<Record<string, number>>({});
  if (!queues.value) return <Loading rows={6} />;
  if (names.length === 0) {
    return (
      <Card>
        <Empty icon="keys" title={t("No queue keeps its jobs in order")}>{t("Queues with order=\"key\" or a Lane appear here.")}</Empty>
      </Card>
    );
  }
  const none = names.every((name) => found[name] === 0);
  return (
    <>
      {names.some((name) => found[name] === undefined) && <Loading rows={6} />}
      {names.map((name) => (
        <QueueLines key={name} queue={name} told={(n) => setFound((before) => (before[name] === n ? before : { ...before, [name]: n }))} />
      ))}
      {none && (
        <Card>
          <Empty icon="keys" title={t("No job waits behind another one")}>{t("Lanes appear here while jobs of one key wait for each other.")}</Empty>
        </Card>
      )}
    </>
  );
}

function QueueLines({ queue, told }: { queue: string; told: (n: number) => void }) {
  const asked = useAsk<Partitions>(at.queue(queue, "/partitions"), { every: 3000 });
  if (!asked.data) {
    if (asked.error) told(1);
    return asked.error && <Card title={queue}><Failed error={asked.error} again={asked.again} /></Card>;
  }
  const { haltedLanes } = asked.data;
  const longLanes = asked.data.longLanes.filter((one) => !haltedLanes.some((other) => other.key === one.key && other.partition === one.partition));
  told(haltedLanes.length + longLanes.length);
  if (!haltedLanes.length && !longLanes.length) return null;
  return (
    <Card title={queue} flush>
      <div class="scroll">
        <table>
          <thead>
            <tr>
              <th class="grow">{t("Key")}</th>
              <th>{t("State")}</th>
              <th class="num">{t("waiting")}</th>
              <th class="num">{t("Partition")}</th>
              <th class="num">{t("Since")}</th>
            </tr>
          </thead>
          <tbody>
            {haltedLanes.map((one) => (
              <tr key={`h${one.partition}${one.key}`} data-row tabIndex={-1}>
                <td class="grow">{one.key === null ? <a href={to.job(queue, one.jobId)}>{t("the whole partition")}</a> : <a class="mono" href={to.keys(queue, one.key)}>{one.key}</a>}</td>
                <td><Tag tone="bad">{t("halted")}</Tag></td>
                <td class="num" data-label={t("waiting")}>{count(one.waiting)}</td>
                <td class="num" data-label={t("Partition")}>{one.partition}</td>
                <td class="num" data-label={t("Since")}><Ago at={one.since} /></td>
              </tr>
            ))}
            {longLanes.map((one) => (
              <tr key={`l${one.partition}${one.key}`} data-row tabIndex={-1}>
                <td class="grow">{one.key === null ? t("the whole partition") : <a class="mono" href={to.keys(queue, one.key)}>{one.key}</a>}</td>
                <td><Tag>{t("waiting")}</Tag></td>
                <td class="num" data-label={t("waiting")}>{count(one.waiting)}</td>
                <td class="num" data-label={t("Partition")}>{one.partition}</td>
                <td class="num" data-label={t("Since")}><Ago at={one.oldestWaitingAt} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}
