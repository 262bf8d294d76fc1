// The partitions of a queue: who reads each, how much waits there, which keys hold others up; and changing their number.
import { useState } from "preact/hooks";
import { at, put } from "../api";
import { useAsk } from "../ask";
import { clock, count, duration } from "../format";
import { Ago, Bar, Button, Card, Tag } from "../parts/basics";
import { Shown } from "../parts/blank";
import { FormDialog } from "../parts/dialog";
import { Field } from "../parts/field";
import { Icon } from "../parts/icon";
import { say } from "../parts/toast";
import { to } from "../route";
import { admin } from "../session";
import { t, translated } from "../words";
import type { Partition, Partitions, Queue } from "../wire";

export function PartitionsCard({ queue }: { queue: Queue }) {
  const asked = useAsk<Partitions>(at.queue(queue.name, "/partitions"), { every: 3000 });
  const [changing, setChanging] = useState(false);
  return (
    <Card
      title={t("Partitions")}
      aside={admin.value && <Button small icon="settings" onClick={() => setChanging(true)}>{t("Change their number")}</Button>}
    >
      <Shown answer={asked} rows={3}>
        {(told) => (
          <>
            {told.warnings.map((one) => (
              <div class={`notice ${one.serious ? "bad" : "warn"}`} key={one.fact}>
                <Icon name="dead" />
                <div>
                  <b>{translated(one.fact)}</b>
                  <p>{translated(one.next)}</p>
                </div>
              </div>
            ))}
            {told.repartitioning && <Moving told={told} />}
            <Strip told={told} />
            <Lanes told={told} queue={queue.name} />
          </>
        )}
      </Shown>
      {changing && <Change queue={queue} onClose={() => setChanging(false)} then={asked.again} />}
    </Card>
  );
}

function Strip({ told }: { told: Partitions }) {
  const most = Math.max(...told.partitions.map((one) => one.waiting), 1);
  return (
    <ul class={`strip ${told.partitions.length > 16 ? "dense" : ""}`}>
      {told.partitions.map((one) => (
        <PartitionCell key={`${one.draining}${one.partition}`} one={one} most={most} />
      ))}
    </ul>
  );
}

function PartitionCell({ one, most }: { one: Partition; most: number }) {
  const owner = one.readers[0];
  const lag = one.oldestWaitingAt ? Math.max(0, clock.value - Date.parse(one.oldestWaitingAt)) : 0;
  return (
    <li class={`cell ${owner ? "" : "unread"} ${one.draining ? "draining" : ""}`}>
      <div class="cell-head">
        <b>{one.partition}</b>
        {one.draining && <Tag tone="warn">{t("old")}</Tag>}
        <span class="push">{one.waiting ? count(one.waiting) : <span class="faint">0</span>}</span>
      </div>
      <Bar value={one.waiting} of={most} label={t("{n} waiting", { n: one.waiting })} tone={lag > 60_000 ? "warn" : ""} />
      <small class="cut" title={one.readers.map((who) => `${who.worker} (${who.host}, ${who.sharing})`).join("\n")}>
        {owner ? (
          <a href={to.workers()}>
            {owner.worker}
            {one.readers.length > 1 && ` +${one.readers.length - 1}`}
          </a>
        ) : (
          <span class="bad-text">{t("no worker reads it")}</span>
        )}
      </small>
      <small class="faint cut">
        {one.oldestWaitingAt ? t("lag {time}", { time: duration(lag) }) : t("no lag")}
        {one.inLanes ? ` · ${t("{n} behind others", { n: one.inLanes })}` : ""}
      </small>
    </li>
  );
}

function Moving({ told }: { told: Partitions }) {
  const [most] = useState({ jobs: 0 });
  const left = told.repartitioning;
  if (!left) return null;
  most.jobs = Math.max(most.jobs, left.jobs, 1);
  return (
    <div class="notice accent">
      <Icon name="retry" />
      <div class="grow">
        <b>{t("The number of partitions is being changed: {before} → {now}", { before: left.before.join(", "), now: left.partitions })}</b>
        <Bar value={most.jobs - left.jobs} of={most.jobs} label={t("Work in old partitions")} tone="good" />
        <p>
          {t("{n} job is left in old partitions|{n} jobs are left in old partitions", { n: left.jobs })}
          {left.halted > 0 && ` · ${t("{n} key is halted and waits for you|{n} keys are halted and wait for you", { n: left.halted })}`}
        </p>
      </div>
    </div>
  );
}

function Lanes({ told, queue }: { told: Partitions; queue: string }) {
  const long = told.longLanes.filter((one) => !told.haltedLanes.some((other) => other.key === one.key && other.partition === one.partition));
  if (!told.haltedLanes.length && !long.length) return null;
  return (
    <div class="lanes">
      {told.haltedLanes.length > 0 && (
        <section>
          <h3>{t("Halted keys")}</h3>
          <ul class="rows boxed">
            {told.haltedLanes.map((one) => (
              <li key={`${one.partition}${one.key}`}>
                <Tag tone="bad">{t("halted")}</Tag>
                <a class="row-main one-line" href={one.key === null ? to.job(queue, one.jobId) : to.keys(queue, one.key)}>
                  <span class="mono cut">{one.key ?? t("partition {n}", { n: one.partition })}</span>
                </a>
                <small class="faint">{t("{n} waiting", { n: one.waiting })} · <Ago at={one.since} /></small>
              </li>
            ))}
          </ul>
        </section>
      )}
      {long.length > 0 && (
        <section>
          <h3>{t("Longest lanes")}</h3>
          <ul class="rows boxed">
            {long.slice(0, 6).map((one) => (
              <li key={`${one.partition}${one.key}`}>
                <span class="row-count">{count(one.waiting)}</span>
                {one.key === null ? (
                  <span class="row-main">{t("partition {n}", { n: one.partition })}</span>
                ) : (
                  <a class="row-main one-line" href={to.keys(queue, one.key)}>
                    <span class="mono cut">{one.key}</span>
                  </a>
                )}
                <small class="faint"><Ago at={one.oldestWaitingAt} /></small>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

function Change({ queue, onClose, then }: { queue: Queue; onClose: () => void; then: () => Promise<void> }) {
  const [text, setText] = useState(String(queue.partitions));
  return (
    <FormDialog
      title={t("Change the partitions of {queue}", { queue: queue.name })}
      action={t("Change")}
      onClose={onClose}
      disabled={!/^[1-9]\d*$/.test(text) || Number(text) === queue.partitions}
      submit={async () => {
        await put(at.queue(queue.name, "/partitions"), { partitions: Number(text) });
        say(t("{queue} has {n} partitions now", { queue: queue.name, n: Number(text) }));
        await then();
      }}
    >
      <p class="dialog-text">{t("The new number is in force at once. Jobs in old partitions are worked off there; nothing is lost and the jobs of a key keep their order.")}</p>
      <Field label={t("Partitions")} type="number" value={text} onInput={setText} required autofocus />
    </FormDialog>
  );
}

