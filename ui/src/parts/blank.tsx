// What stands where there is nothing to show: not yet, not at all, or not this time.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../api";
import type { Answer } from "../ask";
import { takeFocus } from "../focus";
import { to } from "../route";
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

/** In a view without a heading it is the heading, and shows a way on. */
export function Failed({ error, again }: { error: Problem; again?: () => Promise<void> }) {
  const [alone, setAlone] = useState(false);
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => setAlone(document.querySelector("main h1:not(.blank-title)") === null), []);
  useEffect(() => takeFocus(heading.current), [alone]);
  const title = error.status === 404 ? t("Not found") : t("This could not be loaded");
  return (
    <div class="blank bad" role="alert">
      <span class="blank-icon">
        <Icon name="failed" size={22} />
      </span>
      {alone ? <h1 class="blank-title" ref={heading}>{title}</h1> : <p class="blank-title">{title}</p>}
      <div class="blank-text">{error.message}</div>
      {again && <Button icon="retry" onClick={again}>{t("Try again")}</Button>}
      {alone && <WayOn />}
    </div>
  );
}

/** Links for somebody whose address leads nowhere. */
export function WayOn() {
  return (
    <nav class="way-on" aria-label={t("Other views")}>
      <a href={to.overview()}>{t("Overview")}</a>
      <a href={to.queues()}>{t("Queues")}</a>
      <a href={to.jobs()}>{t("Jobs")}</a>
    </nav>
  );
}

/** An answer, or what there is instead of it. */
export function Shown<T>({ answer, rows, children }: { answer: Answer<T>; rows?: number; children: (data: T) => ComponentChildren }) {
  if (answer.data === undefined) return answer.error ? <Failed error={answer.error} again={answer.again} /> : <Loading rows={rows} />;
  return <>{children(answer.data)}</>;
}
