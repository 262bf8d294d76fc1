// Somebody knows of a kind of error: who, since when, with which note, and whether it is back.
import { useState } from "preact/hooks";
import { at, put, remove } from "../api";
import { changes } from "../live";
import { Ago, Button, Tag } from "../parts/basics";
import { FormDialog } from "../parts/dialog";
import { Field } from "../parts/field";
import { Icon } from "../parts/icon";
import { doing } from "../parts/toast";
import { operator } from "../session";
import { t, type Text } from "../words";
import type { Acknowledged } from "../wire";

const back: Record<NonNullable<Acknowledged["returned"]>, Text> = {
  reappeared: "It is back: it failed again after a quiet hour.",
  rate: "It is back: it fails far more often than before.",
};

const path = (queue: string, kind: string) => at.queue(queue, `/errors/${encodeURIComponent(kind)}/acknowledgement`);

/** A line for a list: who knows of it, or that it is back. */
export function KnownLine({ known }: { known: Acknowledged | null | undefined }) {
  if (!known) return null;
  return known.returned ? <Tag tone="bad">{t("is back")}</Tag> : <> · {t("acknowledged by {who}: {note}", { who: known.by, note: known.note })}</>;
}

export function KnownError({ queue, kind, known }: { queue: string; kind: string; known: Acknowledged | null | undefined }) {
  if (!known) return null;
  const withdraw = async () => {
    await doing(() => remove(path(queue, kind)), t("The acknowledgement was withdrawn"));
    changes.value++;
  };
  return (
    <section class={`known ${known.returned ? "bad" : ""}`} aria-label={t("Acknowledged")}>
      <Icon name={known.returned ? "failed" : "check"} />
      <div>
        <b>{known.note}</b>
        <small class="faint">{t("acknowledged by {who}", { who: known.by })} · <Ago at={known.at} /></small>
        {known.returned && <p class="bad-text">{t(back[known.returned])}</p>}
      </div>
      {operator.value && <Button small onClick={withdraw}>{t("Withdraw")}</Button>}
    </section>
  );
}

export function Acknowledge({ queue, kind, error, onClose }: { queue: string; kind: string; error: string; onClose: () => void }) {
  const [note, setNote] = useState("");
  return (
    <FormDialog
      title={t("Acknowledge this error?")}
      action={t("Acknowledge")}
      onClose={onClose}
      disabled={!note.trim()}
      submit={async () => {
        await put(path(queue, kind), { note: note.trim() });
        changes.value++;
      }}
    >
      <p class="error-line">{error}</p>
      <p class="dialog-text">{t("It comes last on the overview until it fails again after a quiet hour, or far more often than now.")}</p>
      <Field label={t("Note")} wide required autofocus value={note} onInput={setNote} placeholder={t("who works on it, a ticket …")} />
    </FormDialog>
  );
}
