// How numbers, times and sizes are said, in the language of the page.
import { signal } from "@preact/signals";
import { locale, t } from "./words";

/** Goes on once a second, for times that are said as "12 s ago". */
export const clock = signal(Date.now());
setInterval(() => {
  if (!document.hidden) clock.value = Date.now();
}, 1000);

export function count(n: number): string {
  return new Intl.NumberFormat(locale.value).format(n);
}

export function short(n: number): string {
  if (Math.abs(n) < 10_000) return count(n);
  return new Intl.NumberFormat(locale.value, { notation: "compact", maximumFractionDigits: 1 }).format(n);
}

export function rate(n: number): string {
  return new Intl.NumberFormat(locale.value, { maximumFractionDigits: n < 10 ? 1 : 0 }).format(n);
}

/** Milliseconds, in the two largest units that matter. */
export function duration(ms: number): string {
  if (ms < 1) return `${ms > 0 ? "< 1" : "0"} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${new Intl.NumberFormat(locale.value, { maximumFractionDigits: 1 }).format(s)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const units: [number, string][] = [
    [86_400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  let rest = Math.round(s);
  const parts: string[] = [];
  for (const [size, unit] of units) {
    if (rest >= size || parts.length) {
      const n = Math.floor(rest / size);
      if (n || !parts.length) parts.push(`${n} ${unit}`);
      rest -= n * size;
      if (parts.length === 2 || (parts.length && size === 86_400 && n > 9)) break;
    }
  }
  return parts.join(" ");
}

export function ago(iso: string, now: number): string {
  const ms = now - Date.parse(iso);
  const form = new Intl.RelativeTimeFormat(locale.value, { numeric: "always", style: "short" });
  const s = Math.round(Math.abs(ms) / 1000);
  const sign = ms >= 0 ? -1 : 1;
  if (s < 1 || (sign > 0 && s < 3)) return t("now"); // clocks differ a little
  if (s < 60) return form.format(sign * s, "second");
  const whole = sign < 0 ? Math.floor : Math.round;
  if (s < 3600) return form.format(sign * whole(s / 60), "minute");
  if (s < 172_800) return form.format(sign * whole(s / 3600), "hour");
  return form.format(sign * whole(s / 86_400), "day");
}

export function moment(iso: string, zone?: string): string {
  return new Intl.DateTimeFormat(locale.value, {
    dateStyle: "medium",
    timeStyle: "medium",
    hourCycle: "h23",
    timeZone: zone,
  }).format(new Date(iso));
}

/** Day and time of day, for lists. */
export function shortMoment(iso: string, zone?: string): string {
  return new Intl.DateTimeFormat(locale.value, {
    weekday: "short",
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
    hourCycle: "h23",
    timeZone: zone,
  }).format(new Date(iso));
}

export function timeOfDay(iso: string | number, digits?: 3): string {
  return new Intl.DateTimeFormat(locale.value, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: digits, hourCycle: "h23" }).format(
    new Date(iso),
  );
}

export function bytes(n: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (n >= 1000 && at < units.length - 1) {
    n /= 1000;
    at++;
  }
  return `${new Intl.NumberFormat(locale.value, { maximumFractionDigits: n < 10 && at ? 1 : 0 }).format(n)} ${units[at]}`;
}

export const zoneHere = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** The end of a long id, which differs most. */
export function shortId(id: string): string {
  return id.length <= 12 ? id : `…${id.slice(-6)}`;
}

/** A text of the server with the ids of jobs in it, for a row. */
export function withShortIds(text: string): string {
  return text.replace(/\b[0-9a-f]{32}\b/g, shortId);
}
