// What stands where there is nothing to show: not yet, not at all, or not this time.
import type { ComponentChildren } from "preact";
import type { Problem } from "../api";
import type { Answer } from "../ask";
import { t } from "../words";
import { Button } from "./basics";
import { Icon, type IconName } from "./icon";

export function Empty({ icon = "check", title, children }: { icon?: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="blank">
      <span class="blank-icon">
        <Icon name={icon} size={22} />
      </span>
      <p class="blank-title">{title}</p>
      {children && <div class="blank-text">{children}</div>}
    </div>
  );
}

export function Loading({ rows = 4 }: { rows?: number }) {
  return (
    <div class="loading" role="status" aria-label={t("Loading")}>
      {Array.from({ length: rows }, (_, n) => (
        <span class="bone" key={n} />
      ))}
    </div>
  );
}

export function Failed({ error, again }: { error: Problem; again?: () => Promise<void> }) {
  return (
    <div class="blank bad" role="alert">
      <span class="blank-icon">
        <Icon name="failed" size={22} />
      </span>
      <p class="blank-title">{error.status === 404 ? t("Not found") : t("This could not be loaded")}</p>
      <div class="blank-text">{error.message}</div>
      {again && <Button icon="retry" onClick={again}>{t("Try again")}</Button>}
    </div>
  );
}

/** An answer, or what there is instead of it. */
export function Shown<T>({ answer, rows, children }: { answer: Answer<T>; rows?: number; children: (data: T) => ComponentChildren }) {
  if (answer.data === undefined) return answer.error ? <Failed error={answer.error} again={answer.again} /> : <Loading rows={rows} />;
  return <>{children(answer.data)}</>;
}
