// The small parts that every view is made of.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { takeFocus } from "../focus";
import { ago, clock, count, moment } from "../format";
import { t, type Text } from "../words";
import type { Stats } from "../wire";
import { Icon, type IconName } from "./icon";

export const STATES = ["waiting", "active", "delayed", "completed", "failed", "cancelled"] as const;

/** How many jobs of a queue are in a state. Jobs that a pause holds back are waiting. */
export function countOf(one: Stats, state: (typeof STATES)[number]): number {
  return state === "waiting" ? one.waiting + one.paused : one[state];
}
export type State = (typeof STATES)[number];

const icons: Record<State, IconName> = {
  waiting: "waiting",
  active: "active",
  delayed: "delayed",
  completed: "done",
  failed: "failed",
  cancelled: "cancel",
};

export function stateIcon(state: State): IconName {
  return icons[state];
}

/** Never by colour alone: icon, word, colour. */
export function StateBadge({ state }: { state: string }) {
  return (
    <span class={`badge state-${state}`}>
      <Icon name={icons[state as State] ?? "waiting"} size={13} />
      {t(state as Text)}
    </span>
  );
}

export function Tag({ children, tone = "plain" }: { children: ComponentChildren; tone?: "plain" | "good" | "warn" | "bad" | "accent" }) {
  return <span class={`tag ${tone}`}>{children}</span>;
}

/** "12 s ago"; the moment itself is in its title. */
export function Ago({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="faint">–</span>;
  return (
    <time dateTime={at} title={moment(at)} class="nowrap">
      {ago(at, Math.max(clock.value, Date.now() - 1000))}
    </time>
  );
}

interface ButtonProps {
  children?: ComponentChildren;
  icon?: IconName;
  kind?: "plain" | "primary" | "danger" | "ghost";
  small?: boolean;
  onClick?: () => unknown;
  type?: "button" | "submit";
  disabled?: boolean;
  title?: string;
  label?: string;
  pressed?: boolean;
}

/** While what it does is under way it cannot be pressed again. */
export function Button({ children, icon, kind = "plain", small, onClick, type = "button", disabled, title, label, pressed }: ButtonProps) {
  const [busy, setBusy] = useState(false);
  const press = async () => {
    if (!onClick || busy) return;
    setBusy(true);
    try {
      await onClick();
    } finally {
      setBusy(false);
    }
  };
  return (
    <button
      type={type}
      class={`button ${kind} ${small ? "small" : ""} ${children ? "" : "icon-only"}`}
      onClick={onClick && (() => void press())}
      disabled={disabled || busy}
      title={title ?? label}
      aria-label={label}
      aria-pressed={pressed}
      aria-busy={busy || undefined}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function Copy({ text, label }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea"); // pages without TLS have no clipboard
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return <Button kind="ghost" small icon={done ? "check" : "copy"} label={done ? t("Copied") : (label ?? t("Copy"))} onClick={copy} />;
}

export function Head({ title, under, children, back }: { title: ComponentChildren; under?: ComponentChildren; children?: ComponentChildren; back?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => takeFocus(heading.current), []);
  return (
    <header class="head">
      <div class="head-words">
        {back && <div class="back">{back}</div>}
        <h1 ref={heading}>{title}</h1>
        {under && <div class="under">{under}</div>}
      </div>
      {children && <div class="head-actions">{children}</div>}
    </header>
  );
}

export function Card({ title, aside, children, flush, id, note }: { title?: ComponentChildren; aside?: ComponentChildren; children: ComponentChildren; flush?: boolean; id?: string; note?: ComponentChildren }) {
  return (
    <section class={`card ${flush ? "flush" : ""}`} id={id}>
      {(title || aside) && (
        <div class="card-head">
          <h2>{title}</h2>
          {aside && <div class="card-aside">{aside}</div>}
        </div>
      )}
      {note && <p class="card-note">{note}</p>}
      {children}
    </section>
  );
}

export function Figure({ label, value, unit, note, tone, href }: { label: string; value: ComponentChildren; unit?: string; note?: ComponentChildren; tone?: string; href?: string }) {
  const inside = (
    <>
      <span class="figure-label">{label}</span>
      <span class="figure-value">
        {value}
        {unit && <small> {unit}</small>}
      </span>
      <span class="figure-note">{note ?? "\u00a0"}</span>
    </>
  );
  return href ? (
    <a class={`figure ${tone ?? ""}`} href={href}>
      {inside}
    </a>
  ) : (
    <div class={`figure ${tone ?? ""}`}>{inside}</div>
  );
}

export function Bar({ value, of, label, tone = "" }: { value: number; of: number; label: string; tone?: string }) {
  const part = of > 0 ? Math.min(1, value / of) : 0;
  return (
    <div class={`bar ${tone}`} role="progressbar" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round(part * 100)}>
      <span style={{ width: `${part * 100}%` }} />
    </div>
  );
}

/** A count that leads to what was counted. */
export function CountLink({ n, href, tone, label }: { n: number; href: string; tone?: string; label: string }) {
  return (
    <a class={`count-link ${n ? (tone ?? "") : "zero"}`} href={href} aria-label={label} title={label}>
      {count(n)}
    </a>
  );
}

export function Key({ children }: { children: ComponentChildren }) {
  return <kbd>{children}</kbd>;
}
