// Schedules: what runs when, in words, what ran and how it ended; run now, pause, change, add.
import { useState } from "preact/hooks";
import { at, post, remove } from "../api";
import { useAsk } from "../ask";
import { clock, duration, shortMoment } from "../format";
import { Ago, Button, Card, Head, StateBadge, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { Rule } from "../parts/cron";
import { confirm } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { type SortColumn, useSort } from "../parts/sort";
import { doing, undoing } from "../parts/toast";
import { place, refine, to } from "../route";
import { admin, operator } from "../session";
import { t, translated } from "../words";
import type { PastRun, ScheduleDays, ScheduleRun, Schedule, Schedules as Told } from "../wire";
import { DayOfSchedules } from "./schedule-day";
import { RunBars, ScheduleDetails } from "./schedule-details";
import { EditSchedule } from "./schedule-edit";

export function Schedules() {
  const asked = useAsk<Told>("api/schedules", { every: 3000, always: true });
  const days = useAsk<ScheduleDays>("api/schedule-days", { every: 10_000, always: true });
  const [editing, setEditing] = useState<Schedule | "new" | null>(null);
  const wanted = place.value.query.get("find") ?? "";
  const runs = new Map(days.data?.schedules.map((one) => [one.name, one.runs]));
  return (
    <>
      <Head title={t("Schedules")}>
        <div class="search" data-filter>
          <input type="search" aria-label={t("Find a schedule")} placeholder={t("Find a schedule")} value={wanted} onInput={(event) => refine({ find: event.currentTarget.value }, { replace: true })} />
        </div>
        {admin.value && <Button kind="primary" icon="plus" onClick={() => setEditing("new")}>{t("New schedule")}</Button>}
      </Head>
      <Shown answer={asked} rows={8}>
        {(told) => {
          const shown = told.schedules.filter((one) => `${one.name} ${one.queue}/${one.task}`.toLowerCase().includes(wanted.toLowerCase()));
          return shown.length === 0 ? (
            <Card>
              <Empty icon="schedules" title={wanted ? t("No schedule matches") : t("There are no schedules")}>{!wanted && t("They are declared in code with @queue.cron, or added here.")}</Empty>
            </Card>
          ) : (
            <>
              <DayOfSchedules days={days.data?.schedules.filter((day) => shown.some((one) => one.name === day.name))} />
              <ScheduleTable shown={shown} runs={runs} edit={setEditing} then={asked.again} />
            </>
          );
        }}
      </Shown>
      {editing && <EditSchedule one={editing === "new" ? null : editing} onClose={() => setEditing(null)} then={asked.again} />}
    </>
  );
}

interface Rows {
  shown: Schedule[];
  runs: Map<string, PastRun[]>;
  edit: (one: Schedule) => void;
  then: () => Promise<void>;
}

const COLUMNS: SortColumn<Schedule>[] = [
  { name: "name", title: "Schedule", of: (one) => one.name },
  { name: "when", title: "When" },
  { name: "next", title: "Next run", of: (one) => (one.paused || !one.next[0] ? Number.MAX_VALUE : Date.parse(one.next[0])) },
  { name: "last", title: "Last run", of: (one) => -Date.parse(one.lastRun?.firedAt ?? "1970-01-01") },
  { name: "runs", title: "Last runs", wide: true },
];

function ScheduleTable({ shown, runs, edit, then }: Rows) {
  const [open, setOpen] = useState<string | null>(place.value.query.get("name"));
  const { sorted, heads } = useSort(COLUMNS, shown, { by: "name", down: false });
  return (
    <Card flush>
      <div class="scroll">
        <table class="dense schedules">
          <thead>
            <tr>
              {heads}
              {operator.value && <th><span class="unseen">{t("Actions")}</span></th>}
            </tr>
          </thead>
          <tbody>
            {sorted.map((one) => (
              <Row key={one.name} one={one} runs={runs.get(one.name) ?? []} open={open === one.name} toggle={() => setOpen(open === one.name ? null : one.name)} edit={() => edit(one)} then={then} />
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

interface RowProps {
  one: Schedule;
  runs: PastRun[];
  open: boolean;
  toggle: () => void;
  edit: () => void;
  then: () => Promise<void>;
}

function Row({ one, runs, open, toggle, edit, then }: RowProps) {
  const next = one.next[0];
  const left = next ? Date.parse(next) - clock.value : 0;
  return (
    <>
      <tr data-row tabIndex={-1} class={`schedule ${one.paused ? "is-paused" : ""}`}>
        <td class="schedule-name">
          <button type="button" class="fold strong" aria-expanded={open} onClick={toggle}>
            <Icon name="right" size={10} />{one.name}
          </button>
          {one.paused && <Tag tone="warn">{t("paused")}</Tag>}
          {one.source !== "code" && <Tag>{t("added at run time")}</Tag>}
          <small class="faint">
            <a href={to.queue(one.queue)}>{one.queue}/{one.task}</a>
          </small>
          {one.problem && <small class="bad-text">{translated(one.problem)}</small>}
        </td>
        <td data-label={t("When")}><Rule one={one} /></td>
        <td data-label={t("Next run")} class="nowrap" title={next && shortMoment(next)}>
          {one.paused ? <span class="faint">{t("paused")}</span> : next ? (left > 0 ? t("in {time}", { time: duration(left) }) : t("now")) : t("never again")}
        </td>
        <td data-label={t("Last run")}>
          {one.lastRun ? (
            <a class="last-run" href={to.job(one.queue, one.lastRun.jobId)}>
              {one.lastRun.state && <StateBadge state={one.lastRun.state} />} <Ago at={one.lastRun.firedAt} />
            </a>
          ) : (
            <span class="faint">{t("not yet")}</span>
          )}
          {one.missed > 0 && <small class="bad-text"> {t("{n} missed", { n: one.missed })}</small>}
        </td>
        <td class="wide-only" data-label={t("Last runs")}><RunBars runs={runs.slice(0, 20)} queue={one.queue} /></td>
        {operator.value && <td class="num row-actions"><Actions one={one} edit={edit} then={then} /></td>}
      </tr>
      {open && (
        <tr class="unfolded">
          <td colSpan={6}><ScheduleDetails one={one} /></td>
        </tr>
      )}
    </>
  );
}

function Actions({ one, edit, then }: { one: Schedule; edit: () => void; then: () => Promise<void> }) {
  const run = async () => {
    let ran: ScheduleRun | undefined;
    const well = await doing(async () => {
      ran = await post<ScheduleRun>(at.schedule(one.name, "/run"));
    }, t("{name} was started", { name: one.name }));
    if (well && ran) await then();
  };
  const call = (verb: "pause" | "resume") => async () => {
    await post(at.schedule(one.name, `/${verb}`));
    await then();
  };
  const [act, back] = one.paused ? (["resume", "pause"] as const) : (["pause", "resume"] as const);
  const said = { pause: t("{name} is paused", { name: one.name }), resume: t("{name} is resumed", { name: one.name }) };
  return (
    <>
      <Button small icon="play" onClick={run}>{t("Run now")}</Button>
      <Button
        small
        kind="ghost"
        label={one.paused ? t("Resume {name}", { name: one.name }) : t("Pause {name}", { name: one.name })}
        icon={one.paused ? "play" : "pause"}
        onClick={() => doing(call(act), said[act], { undo: () => undoing(call(back), said[back]) })}
      />
      {admin.value && <Button small kind="ghost" icon="edit" label={t("Edit {name}", { name: one.name })} onClick={edit} />}
      {admin.value && one.source !== "code" && <Button
        small
        kind="ghost"
        icon="trash"
        label={t("Remove {name}", { name: one.name })}
        onClick={() =>
          confirm({
            title: t("Remove the schedule {name}?", { name: one.name }),
            text: t("It no longer runs. If the code declares it, it runs as the code says. Its jobs stay."),
            action: t("Remove"),
            danger: true,
            submit: async () => {
              await remove(at.schedule(one.name));
              await then();
            },
          })
        }
      />}
    </>
  );
}
