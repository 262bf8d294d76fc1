// Shared limits: how much of each is used, which jobs wait for it, the keys with the most use; admins change it for all workers.
import { useState } from "preact/hooks";
import { put, remove } from "../api";
import { useAsk } from "../ask";
import { count, duration } from "../format";
import { Ago, Bar, Button, Card, Head, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { FormDialog } from "../parts/dialog";
import { Field } from "../parts/field";
import { doing, say } from "../parts/toast";
import { place, to } from "../route";
import { admin } from "../session";
import { t } from "../words";
import type { Limit, Limits as Told } from "../wire";

const limitAt = (name: string) => `api/limits/${encodeURIComponent(name)}`;

export function Limits() {
  const asked = useAsk<Told>("api/limits", { every: 2000, always: true });
  const only = place.value.query.get("only");
  return (
    <>
      <Head title={t("Limits")} under={t("Limits that several queues and tasks share, over all workers")}>
        {only && <a class="button" href={to.limits()}>{t("All limits")}</a>}
      </Head>
      <Shown answer={asked} rows={6}>
        {(told) =>
          told.limits.length ? (
            <>
              {told.limits.filter((one) => !only || one.name === only).map((one) => (
                <LimitCard key={one.name} one={one} then={asked.again} />
              ))}
            </>
          ) : (
            <Card>
              <Empty icon="limits" title={t("No limit is shared")}>
                <p>{t("A worker declares the limits of its tasks when it starts:")}</p>
                <code>qbull.Limit("api", rate=qbull.Rate(500, per=60))</code>
              </Empty>
            </Card>
          )
        }
      </Shown>
    </>
  );
}

function LimitCard({ one, then }: { one: Limit; then: () => Promise<void> }) {
  const [editing, setEditing] = useState(false);
  return (
    <Card
      title={<span class="mono">{one.name}</span>}
      aside={admin.value && <Button small icon="edit" label={t("Change the limit {name}", { name: one.name })} onClick={() => setEditing(true)}>{t("Change")}</Button>}
    >
      <div class="limit-uses">
        <Use
          name={t("In the window")}
          value={one.used}
          of={one.rate?.count ?? null}
          changed={one.changed.includes("rate")}
          note={one.rate && t("of {n} in {time}", { n: count(one.rate.count), time: duration((one.rate.per ?? 1) * 1000) })}
        />
        <Use name={t("Running at a time")} value={one.running} of={one.concurrency} changed={one.changed.includes("concurrency")} note={one.concurrency !== null && t("of {n}", { n: count(one.concurrency) })} />
        <Use name={t("Today (UTC)")} value={one.spent} of={one.daily} changed={one.changed.includes("daily")} note={one.daily !== null && t("of {n}", { n: count(one.daily) })} />
      </div>
      <Waiting one={one} />
      {one.keys.length > 0 && <Keys one={one} />}
      {editing && <Edit one={one} onClose={() => setEditing(false)} then={then} />}
    </Card>
  );
}

function Use({ name, value, of, note, changed }: { name: string; value: number; of: number | null; note: string | false | null; changed: boolean }) {
  const full = of !== null && value >= of;
  return (
    <div class="limit-use">
      <span class="figure-label">{name}</span>
      <span class="limit-value">
        <b>{count(value)}</b> <small class="faint">{note || t("no limit")}</small>
        {changed && <Tag tone="accent">{t("changed")}</Tag>}
      </span>
      {of !== null && <Bar value={value} of={of} label={name} tone={full ? "warn" : ""} />}
    </div>
  );
}

function Waiting({ one }: { one: Limit }) {
  if (!one.waiting) return <p class="faint limit-waiting">{t("No job waits for it")}</p>;
  return (
    <p class="limit-waiting">
      <b>{t("{n} job waits for it|{n} jobs wait for it", { n: one.waiting })}</b>
      {one.since && (
        <span class="faint">
          {" · "}
          {t("the first since")} <Ago at={one.since} />
        </span>
      )}
      {Object.entries(one.queues).map(([queue, jobs]) => (
        <span key={queue}>
          {" · "}
          <a href={to.jobs(queue, "waiting")}>{queue}</a> {count(jobs)}
        </span>
      ))}
    </p>
  );
}

function Keys({ one }: { one: Limit }) {
  return (
    <div class="scroll">
      <table class="dense">
        <thead>
          <tr>
            <th>{t("Key")}</th>
            <th class="num">{t("In the window")}</th>
            <th class="num">{t("Running at a time")}</th>
            {one.daily !== null && <th class="num">{t("Today (UTC)")}</th>}
            <th class="num">{t("Waiting jobs")}</th>
          </tr>
        </thead>
        <tbody>
          {one.keys.map((each) => (
            <tr key={each.key}>
              <td class="mono">{each.key}</td>
              <td class="num" data-label={t("In the window")}>{count(each.used)}</td>
              <td class="num" data-label={t("Running at a time")}>{count(each.running)}</td>
              {one.daily !== null && <td class="num" data-label={t("Today (UTC)")}>{count(each.spent)}</td>}
              <td class="num" data-label={t("Waiting jobs")}>{count(each.waiting)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const text = (value: number | null | undefined) => (value == null ? "" : String(value));
const number = (value: string) => (value === "" ? null : Number(value));

function Edit({ one, onClose, then }: { one: Limit; onClose: () => void; then: () => Promise<void> }) {
  const before = { rate: text(one.rate?.count), per: text(one.rate?.per ?? 60), concurrency: text(one.concurrency), daily: text(one.daily) };
  const [now, set] = useState(before);
  const change = (part: Partial<typeof before>) => set((old) => ({ ...old, ...part }));
  const submit = async () => {
    const body: Record<string, unknown> = {};
    if (now.rate !== before.rate || now.per !== before.per) body.rate = now.rate === "" ? null : { count: Number(now.rate), per: Number(now.per) };
    if (now.concurrency !== before.concurrency) body.concurrency = number(now.concurrency);
    if (now.daily !== before.daily) body.daily = number(now.daily);
    if (Object.keys(body).length) {
      await put(limitAt(one.name), body);
      say(t("The limit {name} was changed", { name: one.name }));
    }
    await then();
  };
  const reset = async () => {
    if (await doing(() => remove(limitAt(one.name)), t("As in the code again"))) {
      await then();
      onClose();
    }
  };
  return (
    <FormDialog title={t("Limit {name}", { name: one.name })} action={t("Change")} submit={submit} onClose={onClose}>
      <p class="dialog-text">{t("The values hold for all workers at once, until they are reset.")}</p>
      <div class="fields">
        <Field label={t("Weight in the window")} type="number" value={now.rate} onInput={(rate) => change({ rate })} placeholder={t("no limit")} />
        <Field label={t("Window in seconds")} type="number" value={now.per} onInput={(per) => change({ per })} />
        <Field label={t("Running at a time")} type="number" value={now.concurrency} onInput={(concurrency) => change({ concurrency })} placeholder={t("no limit")} />
        <Field label={t("Weight of a day")} type="number" value={now.daily} onInput={(daily) => change({ daily })} placeholder={t("no limit")} />
      </div>
      {one.changed.length > 0 && (
        <p>
          <Button small icon="retry" onClick={reset}>{t("Everything as in the code")}</Button>
        </p>
      )}
    </FormDialog>
  );
}
