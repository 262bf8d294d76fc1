// Reasons for actions without a dialog, such as a pause. A setting, off by default, asks for one before each action.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { t } from "../words";
import { Button } from "./basics";
import { Dialog } from "./dialog";
import { Field } from "./field";

const KEPT = "qbull.reasons";
export const asksForReasons = signal(localStorage.getItem(KEPT) === "yes");

export function askForReasons(wanted: boolean): void {
  asksForReasons.value = wanted;
  localStorage.setItem(KEPT, wanted ? "yes" : "no");
}

/** A check box for it. The choice is kept in this browser. */
export function AskForReasons() {
  return (
    <label class="check" title={t("Also before actions without a dialog, in this browser")}>
      <input type="checkbox" checked={asksForReasons.value} onChange={(event) => askForReasons(event.currentTarget.checked)} /> {t("Ask me for a reason before every action")}
    </label>
  );
}

interface Question {
  answer: (reason: string | null) => void;
}

const question = signal<Question | null>(null);

/** The reason for an action: empty if nobody wants to give one, null if the action is called off. */
export function reasonForAction(): Promise<string | null> {
  if (!asksForReasons.value) return Promise.resolve("");
  question.value?.answer(null);
  return new Promise((answer) => (question.value = { answer }));
}

export function ReasonQuestion() {
  const asked = question.value;
  if (!asked) return null;
  const end = (reason: string | null) => {
    question.value = null;
    asked.answer(reason);
  };
  return <Asking end={end} />;
}

function Asking({ end }: { end: (reason: string | null) => void }) {
  const [reason, setReason] = useState("");
  return (
    <Dialog title={t("Give a reason")} onClose={() => end(null)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          end(reason);
        }}
      >
        <Field label={t("Reason, for the audit log")} value={reason} onInput={setReason} placeholder={t("optional")} autofocus wide />
        <div class="dialog-foot">
          <Button onClick={() => end(null)}>{t("Cancel")}</Button>
          <button type="submit" class="button primary">{t("Continue")}</button>
        </div>
      </form>
    </Dialog>
  );
}
