// Dialogs: the browser's own, which keep the focus inside and give it back.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { because, Problem } from "../api";
import { t } from "../words";
import { Button } from "./basics";
import { Field } from "./field";
import { Icon } from "./icon";

interface DialogProps {
  title: string;
  children: ComponentChildren;
  onClose: () => void;
  wide?: boolean;
}

export function Dialog({ title, children, onClose, wide }: DialogProps) {
  const box = useRef<HTMLDialogElement>(null);
  // Before the next key arrives: an effect after the paint loses what is typed until then.
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={box} class={wide ? "wide" : ""} aria-label={title} onCancel={onClose} onClose={onClose} onClick={(event) => event.target === box.current && onClose()}>
      <div class="dialog-in">
        <div class="dialog-head">
          <h2>{title}</h2>
          <button type="button" class="button ghost icon-only small" aria-label={t("Close")} onClick={onClose}>
            <Icon name="close" />
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}

interface FormProps extends Omit<DialogProps, "children"> {
  action: string;
  /** The button that does nothing; "Cancel" unless that could be mistaken for the action. */
  dismiss?: string;
  danger?: boolean;
  /** Throws where it cannot be done; the dialog stays and says why. */
  submit: () => Promise<unknown>;
  children?: ComponentChildren;
  disabled?: boolean;
}

/** A dialog that ends with one action. */
export function FormDialog({ title, action, dismiss, danger, submit, children, onClose, wide, disabled }: FormProps) {
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [reason, setReason] = useState("");
  const send = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await because(reason, submit);
      onClose();
    } catch (why) {
      setError(why instanceof Problem || why instanceof Error ? why.message : String(why));
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose} wide={wide}>
      <form onSubmit={(event) => void send(event)}>
        {children}
        <Field label={t("Reason, for the audit log")} value={reason} onInput={setReason} placeholder={t("optional")} />
        {error && (
          <p class="form-error" role="alert">
            <Icon name="failed" />
            <span>{error}</span>
          </p>
        )}
        <div class="dialog-foot">
          <Button onClick={onClose}>{dismiss ?? t("Cancel")}</Button>
          <button type="submit" class={`button ${danger ? "danger" : "primary"}`} disabled={busy || disabled} aria-busy={busy}>
            {action}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

interface Question {
  title: string;
  text: ComponentChildren;
  action: string;
  /** The button that does nothing; "Cancel" unless that could be mistaken for the action. */
  dismiss?: string;
  danger?: boolean;
  submit: () => Promise<unknown>;
}

const question = signal<Question | null>(null);

/** Ask before something is done. */
export function confirm(asked: Question): void {
  question.value = asked;
}

export function Questions() {
  const asked = question.value;
  if (!asked) return null;
  return (
    <FormDialog title={asked.title} action={asked.action} dismiss={asked.dismiss} danger={asked.danger} submit={asked.submit} onClose={() => (question.value = null)}>
      <div class="dialog-text">{asked.text}</div>
    </FormDialog>
  );
}
