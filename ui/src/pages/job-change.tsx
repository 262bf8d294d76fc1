// A job that has not started: another time, other arguments.
import { useState } from "preact/hooks";
import { at, post } from "../api";
import { Button } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { ArgumentsField } from "../parts/arguments";
import { Field } from "../parts/field";
import { say } from "../parts/toast";
import { me } from "../session";
import { t } from "../words";
import type { Job } from "../wire";
import { asObject } from "./queue-enqueue";

interface ChangeProps {
  job: Job;
  then: () => Promise<void>;
}

export function JobChanges({ job, then }: ChangeProps) {
  const [open, setOpen] = useState<"time" | "arguments" | null>(null);
  const close = () => setOpen(null);
  return (
    <>
      <Button icon="delayed" onClick={() => setOpen("time")}>{t("Reschedule")}</Button>
      {me.value?.seesPayloads && <Button icon="edit" onClick={() => setOpen("arguments")}>{t("Edit")}</Button>}
      {open === "time" && <Reschedule job={job} then={then} onClose={close} />}
      {open === "arguments" && <EditArguments job={job} then={then} onClose={close} />}
    </>
  );
}

function Reschedule({ job, then, onClose }: ChangeProps & { onClose: () => void }) {
  const [when, setWhen] = useState("");
  const submit = async () => {
    await post(at.job(job.queue, job.id, "/reschedule"), { at: when.trim() });
    say(t("The job has another time"));
    await then();
  };
  return (
    <FormDialog title={t("When may the job run?")} action={t("Reschedule")} submit={submit} onClose={onClose}>
      <Field label={t("Time")} value={when} onInput={setWhen} required autofocus placeholder="2h" hint={t("For example 2h, tomorrow, 2030-01-31 or 2030-01-31T12:00:00Z. Dates are in UTC.")} />
    </FormDialog>
  );
}

function EditArguments({ job, then, onClose }: ChangeProps & { onClose: () => void }) {
  const [text, setText] = useState(JSON.stringify(job.payload ?? {}, null, 2));
  const submit = async () => {
    await post(at.job(job.queue, job.id, "/update"), { payload: asObject(text) });
    say(t("The job has other arguments"));
    await then();
  };
  return (
    <FormDialog title={t("Change the arguments")} action={t("Change")} wide submit={submit} onClose={onClose}>
      <ArgumentsField queue={job.queue} task={job.task} value={text} onInput={setText} rows={12} />
    </FormDialog>
  );
}
