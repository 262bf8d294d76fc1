// Dead letters, in groups by their error; retry a group when its cause is gone.
import { useState } from "preact/hooks";
import { at } from "../api";
import { useAsk } from "../ask";
import { count, withShortIds } from "../format";
import { changes, deadOf, queues } from "../live";
import { Ago, Button, Card, Head, Tag } from "../parts/basics";
import { Empty, Loading, Shown } from "../parts/blank";
import { confirm, FormDialog } from "../parts/dialog";
import { Field } from "../parts/field";
import { operate } from "../parts/operations";
import { say } from "../parts/toast";
import { place, to } from "../route";
import { admin, operator } from "../session";
import { t, translated } from "../words";
import type { FailureGroup, Failures } from "../wire";

export function Dead() {
  const now = queues.value;
  const only = place.value.query.get("queue");
  if (!now) return <Loading rows={8} />;
  const failing = Object.values(now)
    .filter((one) => one.failed > 0 && (!only || one.name === only))
    .sort((a, b) => b.failed - a.failed);
  const all = failing.reduce((sum, one) => sum + deadOf(one), 0);
  const more = failing.reduce((sum, one) => sum + (one.cascades ?? 0), 0);
  return (
    <>
      <Head
        title={t("Dead letters")}
        under={failing.length ? `${t("{n} dead letter|{n} dead letters", { n: all })}${more ? ` ${t("and {n} job of its flow|and {n} jobs of their flows", { n: more })}` : ""}` : undefined}
      >
        {only && <a class="button" href={to.dead()}>{t("All queues")}</a>}
      </Head>
      {failing.length === 0 ? (
        <Card>
          <Empty icon="done" title={t("There are no dead letters")}>{t("Jobs come here when all their attempts have failed.")}</Empty>
        </Card>
      ) : (
        failing.map((one) => <QueueLetters key={one.name} queue={one.name} total={one.failed} own={deadOf(one)} />)
      )}
    </>
  );
}

const GROUPED = 10_000; // dead letters that the server looks at

interface Wanted {
  group: FailureGroup | null;
}

function QueueLetters({ queue, total, own }: { queue: string; total: number; own: number }) {
  const asked = useAsk<Failures>(at.queue(queue, "/failures"), { every: 4000 });
  const [retrying, setRetrying] = useState<Wanted | null>(null);
  const counted = asked.data?.groups.reduce((sum, one) => sum + one.count, 0) ?? 0;
  return (
    <Card
      title={
        <>
          <a href={to.queue(queue)}>{queue}</a> <Tag tone="bad">{count(own)}</Tag>
        </>
      }
      aside={operator.value && <Button small icon="retry" onClick={() => setRetrying({ group: null })}>{t("Retry all …")}</Button>}
      flush
    >
      <Shown answer={asked} rows={3}>
        {(told) => (
          <>
            <div class="scroll">
              <table>
                <thead>
                  <tr>
                    <th class="num">{t("Jobs")}</th>
                    <th class="grow">{t("Error")}</th>
                    <th>{t("Tasks")}</th>
                    <th class="num">{t("First")}</th>
                    <th class="num">{t("Last")}</th>
                    {operator.value && <th><span class="unseen">{t("Actions")}</span></th>}
                  </tr>
                </thead>
                <tbody>
                  {[...told.groups.filter((one) => !one.cascade), ...told.groups.filter((one) => one.cascade)].map((one) => (
                    <tr key={one.fingerprint} data-row tabIndex={-1} class={one.cascade ? "cascade" : ""}>
                      <td class={`num ${one.cascade ? "faint" : "strong"}`}>{count(one.count)}</td>
                      <td class="grow">
                        <a class="cut error-text" href={to.error(queue, one.fingerprint)} title={one.lastError}>{withShortIds(one.lastError)}</a>
                        {one.cascade && <small class="faint">{t("Counts under its cause: another job of the flow failed")}</small>}
                      </td>
                      <td class="nowrap">{one.tasks.map((task) => <Tag key={task}>{task}</Tag>)}</td>
                      <td class="num" data-label={t("First")}><Ago at={one.firstAt} /></td>
                      <td class="num" data-label={t("Last")}><a href={to.job(queue, one.lastId)} title={t("The newest of them")}><Ago at={one.lastAt} /></a></td>
                      {operator.value && (
                        <td class="actions">
                          <Button small icon="retry" onClick={() => setRetrying({ group: one })}>{t("Retry")}</Button>
                          {admin.value && <Button small kind="ghost" icon="trash" label={t("Remove this group")} onClick={() => forget(queue, one)} />}
                        </td>
                      )}
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
            {counted < total && counted >= GROUPED && <p class="list-foot faint">{t("grouped are the newest {n} of {all}", { n: count(counted), all: count(total) })}</p>}
          </>
        )}
      </Shown>
      {retrying && <RetryLetters queue={queue} total={total} group={retrying.group} onClose={() => setRetrying(null)} />}
    </Card>
  );
}

function forget(queue: string, group: FailureGroup): void {
  confirm({
    title: t("Remove {n} dead letter?|Remove {n} dead letters?", { n: group.count }),
    text: <span class="error-line">{group.lastError}</span>,
    action: t("Remove"),
    danger: true,
    submit: async () => {
      void operate(queue, { action: "remove", state: "failed", fingerprint: group.fingerprint }).then((ended) => {
        changes.value++;
        say(ended.error ? translated(ended.error) : t("{n} job was removed|{n} jobs were removed", { n: ended.done }), { bad: ended.error !== null });
      });
    },
  });
}

function RetryLetters({ queue, total, group, onClose }: { queue: string; total: number; group: FailureGroup | null; onClose: () => void }) {
  const [rate, setRate] = useState("");
  const [limit, setLimit] = useState("");
  const n = group?.count ?? total;
  return (
    <FormDialog
      title={t("Retry {n} job of {queue}?|Retry {n} jobs of {queue}?", { n, queue })}
      action={t("Retry")}
      onClose={onClose}
      submit={async () => {
        const body = { action: "retry", state: "failed", fingerprint: group?.fingerprint, rate: rate ? Number(rate) : undefined, limit: limit ? Number(limit) : undefined };
        void operate(queue, body).then((ended) => {
          changes.value++;
          say(ended.error ? translated(ended.error) : t("{n} job runs again|{n} jobs run again", { n: ended.done }), { bad: ended.error !== null });
        });
      }}
    >
      {group && <p class="error-line">{group.lastError}</p>}
      <p class="dialog-text">{t("They are enqueued again, the oldest first, with all their attempts and the same arguments.")}</p>
      <div class="fields">
        <Field label={t("How many a second at most")} type="number" value={rate} onInput={setRate} placeholder={t("no limit")} />
        <Field label={t("How many in all at most")} type="number" value={limit} onInput={setLimit} placeholder={t("all")} />
      </div>
    </FormDialog>
  );
}
