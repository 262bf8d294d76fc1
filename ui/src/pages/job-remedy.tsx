// The action beside the reason why a job is not running: what changes it, or the view in which it can be changed.
import { at, post } from "../api";
import { Button } from "../parts/basics";
import { doing } from "../parts/toast";
import { to } from "../route";
import { admin, operator } from "../session";
import { t } from "../words";
import type { Job, Reason } from "../wire";

interface RemedyProps {
  reason: Reason;
  job: Job;
  then: () => Promise<void>;
}

/** Actions are for operators. Links to other views are for everybody who may see these. */
export function Remedy({ reason, job, then }: RemedyProps) {
  const other = String(reason.values.queue ?? job.queue);
  const key = job.key === null ? null : <a class="button small" href={to.keys(job.queue, job.key)}>{t("Open the key")}</a>;
  switch (reason.code) {
    case "paused":
      return operator.value ? <Button small icon="play" onClick={async () => { if (await doing(() => post(at.queue(job.queue, "/resume")), t("{queue} runs again", { queue: job.queue }))) await then(); }}>{t("Resume {queue}", { queue: job.queue })}</Button> : null;
    case "due":
    case "retry":
      return operator.value && job.state === "delayed" ? <Button small icon="promote" onClick={async () => { if (await doing(() => post(at.job(job.queue, job.id, "/promote")), t("It runs now"))) await then(); }}>{t("Run now")}</Button> : null;
    case "halted":
    case "behind":
    case "put-off":
      return key;
    case "rate":
    case "limit":
      return <a class="button small" href={to.settings(job.queue, admin.value)}>{admin.value ? t("Change the limit") : t("Settings of {queue}", { queue: job.queue })}</a>;
    case "shared-limit":
      return <a class="button small" href={to.limits(String(reason.values.limit))}>{t("Open the limit {limit}", { limit: String(reason.values.limit) })}</a>;
    case "flow":
    case "called":
      return reason.jobId === null ? null : <Awaited queue={other} id={reason.jobId} failed={reason.values.error !== undefined} then={then} />;
    case "signal":
      return operator.value ? <Button small onClick={() => show(".signal-form input, .signal-form select, .signal-form textarea, .signal-form button")}>{t("Fill in the signal")}</Button> : null;
    case "sleeping":
      return <Button small onClick={() => show(".steps summary")}>{t("Show its steps")}</Button>;
    case "no-worker":
    case "unread":
    case "no-task":
    case "no-label":
    case "resource":
    case "parked":
    case "busy":
    case "blocked":
      return <a class="button small" href={to.workers()}>{t("Show the workers")}</a>;
    default:
      return null;
  }
}

/** A job that this one waits for: opened, or retried if it did not complete. */
function Awaited({ queue, id, failed, then }: { queue: string; id: string; failed: boolean; then: () => Promise<void> }) {
  const retry = async () => {
    if (await doing(() => post(at.job(queue, id, "/retry")), t("It was enqueued again"))) await then();
  };
  return (
    <span class="remedies">
      {failed && operator.value && <Button small icon="retry" onClick={retry}>{t("Retry that job")}</Button>}
      <a class="button small" href={to.job(queue, id)}>{t("Open that job")}</a>
    </span>
  );
}

/** Go to a part of this page that can be used. */
function show(selector: string): void {
  const found = document.querySelector<HTMLElement>(selector);
  found?.scrollIntoView({ block: "center" });
  found?.focus({ preventScroll: true });
}
