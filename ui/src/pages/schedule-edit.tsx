// A schedule that is added or changed. What is set here wins over the code until it is removed.
import { useState } from "preact/hooks";
import { at, put } from "../api";
import { useAsk } from "../ask";
import { zoneHere } from "../format";
import { queues } from "../live";
import { ArgumentsField } from "../parts/arguments";
import { FormDialog } from "../parts/dialog";
import { Choice, Field, Select } from "../parts/field";
import { say } from "../parts/toast";
import { t } from "../words";
import type { Queue, Schedule } from "../wire";
import { asObject } from "./queue-enqueue";
import { sample } from "./task-arguments";

export function EditSchedule({ one, onClose, then }: { one: Schedule | null; onClose: () => void; then: () => Promise<void> }) {
  const names = Object.keys(queues.value ?? {}).sort();
  const [name, setName] = useState(one?.name ?? "");
  const [queue, setQueue] = useState(one?.queue ?? names[0] ?? "");
  const details = useAsk<Queue>(queue ? at.queue(queue) : null);
  const [task, setTask] = useState(one?.task ?? "");
  const [kind, setKind] = useState<"cron" | "every">(one?.every != null ? "every" : "cron");
  const [cron, setCron] = useState(one?.cron ?? "0 9 * * *");
  const [every, setEvery] = useState(one?.every != null ? String(one.every) : "300");
  const [tz, setTz] = useState(one?.tz ?? zoneHere);
  const [args, setArgs] = useState(one ? JSON.stringify(one.args ?? {}, null, 2) : "");
  const [catchUp, setCatchUp] = useState<string>(one?.catchUp ?? "skip");
  const [overlap, setOverlap] = useState<string>(one?.overlap ?? "skip");
  const tasks = details.waiting ? null : (details.data?.tasks ?? []);
  const loading: [string, string][] = [[task, task || "…"]];
  const chosen = task || tasks?.[0]?.name || "";
  const begin = args || sample(tasks?.find((each) => each.name === chosen)?.arguments ?? null);
  const submit = async () => {
    await put(at.schedule(name), {
      task: `${queue}/${chosen}`,
      ...(kind === "cron" ? { cron } : { every: Number(every) }),
      tz,
      args: asObject(begin),
      catchUp,
      overlap,
      ...(one ? { jitter: one.jitter, catchUpLimit: one.catchUpLimit, start: one.start, end: one.end } : {}),
    });
    say(t("The schedule {name} is in force", { name }));
    await then();
  };
  return (
    <FormDialog title={one ? t("Edit {name}", { name: one.name }) : t("New schedule")} action={one ? t("Save") : t("Add")} submit={submit} onClose={onClose} wide disabled={!name || !chosen}>
      {one?.source === "code" && <p class="dialog-text">{t("It is declared in code. What you set here wins until you remove it.")}</p>}
      <div class="fields three">
        <Field label={t("Name")} value={name} onInput={setName} required disabled={one !== null} autofocus={one === null} placeholder="daily-report" />
        <Select label={t("Queue")} value={queue} onInput={(value) => { setQueue(value); setTask(""); }} options={names.map((each) => [each, each])} />
        {tasks === null || tasks.length ? (
          <Select label={t("Task")} value={chosen} onInput={setTask} options={tasks?.map((each) => [each.name, each.name]) ?? loading} />
        ) : (
          <Field label={t("Task")} value={task} onInput={setTask} required />
        )}
      </div>
      <div class="fields three">
        <div class="field">
          <span class="label">{t("When")}</span>
          <Choice
            label={t("When")}
            value={kind}
            options={[
              ["cron", "cron"],
              ["every", t("interval")],
            ]}
            onPick={setKind}
          />
        </div>
        {kind === "cron" ? (
          <Field label={t("Cron expression")} value={cron} onInput={setCron} mono required hint={t("minute, hour, day, month, weekday")} />
        ) : (
          <Field label={t("Interval in seconds")} type="number" value={every} onInput={setEvery} required />
        )}
        <Field label={t("Time zone")} value={tz} onInput={setTz} list={zones()} required />
      </div>
      <ArgumentsField queue={queue} task={chosen} value={begin} onInput={setArgs} rows={4} />
      <div class="fields">
        <Select
          label={t("When runs were missed")}
          value={catchUp}
          onInput={setCatchUp}
          options={[
            ["skip", t("skip them")],
            ["one", t("run once")],
            ["all", t("run all of them")],
          ]}
        />
        <Select
          label={t("While the last run is active")}
          value={overlap}
          onInput={setOverlap}
          options={[
            ["skip", t("skip the run")],
            ["allow", t("run another one")],
          ]}
        />
      </div>
    </FormDialog>
  );
}

function zones(): string[] {
  return Intl.supportedValuesOf?.("timeZone") ?? [];
}
