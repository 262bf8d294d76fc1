// Schedules: what runs when, in its own zone and in yours; run now, pause, change, add.
import { useState } from "preact/hooks";
import { at, post, remove } from "../api";
import { useAsk } from "../ask";
import { clock, count, duration, shortMoment, zoneHere } from "../format";
import { Ago, Button, Card, Head, StateBadge, Tag } from "../parts/basics";
import { Empty, Shown } from "../parts/blank";
import { confirm } from "../parts/dialog";
import { Icon } from "../parts/icon";
import { doing } from "../parts/toast";
import { to } from "../route";
import { admin, operator } from "../session";
import { t, translated } from "../words";
import type { Preview, ScheduleRun, Schedule, Schedules as Told } from "../wire";
import { EditSchedule } from "./schedule-edit";

export function Schedules() {
  const asked = useAsk<Told>("api/schedules", { every: 3000, always: true });
  const [editing, setEditing] = useState<Schedule | "new" | null>(null);
  return (
    <>
      <Head title={t("Schedules")} under={t("Times are shown in the zone of the schedule and in yours ({zone}).", { zone: zoneHere })}>
        {admin.value && <Button kind="primary" icon="plus" onClick={() => setEditing("new")}>{t("New schedule")}</Button>}
      </Head>
      <Shown answer={asked} rows={8}>
        {(told) =>
          told.schedules.length === 0 ? (
            <Card>
              <Empty icon="schedules" title={t("There are no schedules")}>{t("They are declared in code with @queue.cron, or added here.")}</Empty>
            </Card>
          ) : (
            <div class="schedules">
              {told.schedules.map((one) => (
                <ScheduleCard key={one.name} one={one} edit={() => setEditing(one)} then={asked.again} />
              ))}
            </div>
          )
        }
      </Shown>
      {editing && <EditSchedule one={editing === "new" ? null : editing} onClose={() => setEditing(null)} then={asked.again} />}
    </>
  );
}

function ScheduleCard({ one, edit, then }: { one: Schedule; edit: () => void; then: () => Promise<void> }) {
  const next = one.next[0];
  const left = next ? Date.parse(next) - clock.value : 0;
  return (
    <article class={`card schedule ${one.paused ? "is-paused" : ""}`} data-row tabIndex={-1}>
      <div class="schedule-head">
        <h2>{one.name}</h2>
        <code class="rule">{one.cron ?? t("every {time}", { time: duration((one.every ?? 0) * 1000) })}</code>
        <span class="faint">{one.tz}</span>
        {one.paused && <Tag tone="warn">{t("paused")}</Tag>}
        <span title={one.source === "code" ? t("The code declares it, so only the code can remove it; pause it instead.") : undefined}>
          <Tag>{one.source === "code" ? t("from the code") : t("added at run time")}</Tag>
        </span>
        <span class="push actions">
          {operator.value && <Actions one={one} edit={edit} then={then} />}
        </span>
      </div>
      {one.problem && (
        <div class="notice bad">
          <Icon name="dead" />
          <div>{translated(one.problem)}</div>
        </div>
      )}
      <div class="schedule-body">
        <dl class="facts">
          <div>
            <dt>{t("Task")}</dt>
            <dd>
              <span>
                <a href={to.queue(one.queue)}>{one.queue}</a>/{one.task}
              </span>
            </dd>
          </div>
          <div>
            <dt>{t("Next run")}</dt>
            <dd>{one.paused ? t("not while it is paused") : next ? (left > 0 ? t("in {time}", { time: duration(left) }) : t("now")) : t("never again")}</dd>
          </div>
          <div>
            <dt>{t("Last run")}</dt>
            <dd>
              {one.lastRun ? (
                <a class="last-run" href={to.job(one.queue, one.lastRun.jobId)}>
                  {one.lastRun.state && <StateBadge state={one.lastRun.state} />} <Ago at={one.lastRun.firedAt} />
                </a>
              ) : (
                t("not yet")
              )}
            </dd>
          </div>
          <div>
            <dt>{t("Ticks")}</dt>
            <dd>
              <span>
                {t("{n} fired", { n: count(one.fired) })}
                {one.skipped > 0 && ` · ${t("{n} skipped", { n: count(one.skipped) })}`}
                {one.missed > 0 && <span class="bad-text"> · {t("{n} missed", { n: count(one.missed) })}</span>}
              </span>
            </dd>
          </div>
          <div>
            <dt>{t("When ticks were missed")}</dt>
            <dd>{one.catchUp === "skip" ? t("skip them") : one.catchUp === "one" ? t("run once") : t("run all of them")}</dd>
          </div>
          <div>
            <dt>{t("While the last run goes on")}</dt>
            <dd>{one.overlap === "skip" ? t("skip the tick") : t("run another one")}</dd>
          </div>
        </dl>
        <NextRuns one={one} />
      </div>
    </article>
  );
}

function NextRuns({ one }: { one: Schedule }) {
  const asked = useAsk<Preview>(at.schedule(one.name, "/preview?count=5"), { every: 20_000, always: true });
  const next = one.next.length >= 5 ? one.next.slice(0, 5) : (asked.data?.next ?? one.next);
  const same = one.tz === zoneHere;
  return (
    <table class="next-runs">
      <caption>{one.paused ? t("The next five runs, if it were not paused") : t("The next five runs")}</caption>
      <thead>
        <tr>
          <th>{one.tz}</th>
          {!same && <th>{t("Yours")}</th>}
        </tr>
      </thead>
      <tbody>
        {next.map((moment) => (
          <tr key={moment}>
            <td>{shortMoment(moment, one.tz)}</td>
            {!same && <td class="faint">{shortMoment(moment)}</td>}
          </tr>
        ))}
        {next.length === 0 && (
          <tr>
            <td colSpan={2} class="faint">{t("never again")}</td>
          </tr>
        )}
      </tbody>
    </table>
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
  const said = { pause: t("{name} is paused", { name: one.name }), resume: t("{name} goes on", { name: one.name }) };
  return (
    <>
      <Button small icon="play" onClick={run}>{t("Run now")}</Button>
      <Button
        small
        icon={one.paused ? "play" : "pause"}
        onClick={() => doing(call(act), said[act], { undo: () => doing(call(back), said[back]) })}
      >
        {one.paused ? t("Resume") : t("Pause")}
      </Button>
      {admin.value && <Button small icon="edit" onClick={edit}>{t("Edit")}</Button>}
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
