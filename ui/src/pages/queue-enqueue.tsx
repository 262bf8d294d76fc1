// A new job: a task, its arguments, and when.
import { useState } from "preact/hooks";
import { at, post } from "../api";
import { ArgumentsField } from "../parts/arguments";
import { FormDialog } from "../parts/dialog";
import { Field, Select } from "../parts/field";
import { say } from "../parts/toast";
import { to } from "../route";
import { t } from "../words";
import type { Accepted, Queue } from "../wire";
import { sample } from "./task-arguments";

export function asObject(text: string): Record<string, unknown> {
  let made: unknown;
  try {
    made = JSON.parse(text || "{}");
  } catch (error) {
    throw new Error(t("The arguments are no JSON: {why}", { why: (error as Error).message }));
  }
  if (typeof made !== "object" || made === null || Array.isArray(made)) throw new Error(t("The arguments must be an object, by their names"));
  return made as Record<string, unknown>;
}

export function Enqueue({ queue, onClose }: { queue: Queue; onClose: () => void }) {
  const [task, setTask] = useState(queue.tasks[0]?.name ?? "");
  const known = queue.tasks.find((one) => one.name === task);
  const [payload, setPayload] = useState(sample(known?.arguments ?? null));
  const [delay, setDelay] = useState("");
  const [priority, setPriority] = useState("");
  const [key, setKey] = useState("");
  const pick = (name: string) => {
    setTask(name);
    setPayload(sample(queue.tasks.find((one) => one.name === name)?.arguments ?? null));
  };
  const submit = async () => {
    const options: Record<string, unknown> = {};
    if (delay) options.delay = Number(delay);
    if (priority) options.priority = Number(priority);
    if (key) options.key = key;
    const made = await post<Accepted>(at.queue(queue.name, "/jobs"), { task, payload: asObject(payload), options });
    say(made.created === false ? t("A job with this id was there already") : t("The job was enqueued"), { link: { text: t("Open it"), href: to.job(queue.name, made.jobId) } });
  };
  return (
    <FormDialog title={t("New job in {queue}", { queue: queue.name })} action={t("Enqueue")} submit={submit} onClose={onClose} disabled={!task}>
      {queue.tasks.length ? (
        <Select label={t("Task")} value={task} onInput={pick} options={queue.tasks.map((one) => [one.name, one.name])} wide />
      ) : (
        <Field label={t("Task")} value={task} onInput={setTask} required wide />
      )}
      <ArgumentsField queue={queue.name} task={task} value={payload} onInput={setPayload} rows={7} />
      <div class="fields three">
        <Field label={t("Delay in seconds")} type="number" value={delay} onInput={setDelay} placeholder="0" />
        <Field label={t("Priority, 1 to 10")} type="number" value={priority} onInput={setPriority} placeholder="5" />
        <Field label={t("Key")} value={key} onInput={setKey} placeholder={t("as the task has it")} />
      </div>
    </FormDialog>
  );
}
