// The span of a chart, and the part of it that somebody has zoomed into. Both are in the address, so that they can be sent to others.
import { clock } from "../format";
import { go, place, refine, to } from "../route";
import { t } from "../words";
import { Button } from "./basics";
import type { Period } from "./chart";
import { Choice } from "./field";

const SECONDS = { "1h": 3600, "6h": 6 * 3600, "24h": 86_400, "7d": 7 * 86_400, "30d": 30 * 86_400 } as const;
export type SpanName = keyof typeof SECONDS;

export function spanOf<T extends SpanName>(allowed: readonly T[]): T {
  const said = place.value.query.get("span") as T;
  return allowed.includes(said) ? said : allowed[0]!;
}

/** The part of the span that somebody has zoomed into, from the address. */
export function zoomed(): Period | null {
  const [from, to] = (place.value.query.get("zoom") ?? "").split("-").map(Number);
  return from && to && to > from ? { from, to } : null;
}

/** The zoom of the address, or the whole span up to now, with so many seconds of the step that is not over. */
export function periodOf(span: SpanName, step: number, running = 0): Period {
  const zoom = zoomed();
  if (zoom) return zoom;
  const now = Math.floor(clock.value / 1000 / step) * step + running;
  return { from: now - SECONDS[span], to: now };
}

const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();

/** A period as the API takes it. */
export function between(period: Period | null): { from?: string; to?: string } {
  return period ? { from: iso(period.from), to: iso(period.to) } : {};
}

/** Open the jobs of a part of a chart, of one queue or of all. */
export function openJobs(queue: string | undefined, period: Period): void {
  go(to.jobs(queue, undefined, { after: iso(period.from), before: iso(period.to) }));
}

export function zoomTo(period: Period | null): void {
  refine({ zoom: period && `${Math.round(period.from)}-${Math.round(period.to)}` });
}

export function SpanChoice<T extends SpanName>({ allowed }: { allowed: readonly T[] }) {
  const texts = { "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "30d": "30 d" };
  return (
    <>
      {place.value.query.get("zoom") && <Button small icon="search" onClick={() => zoomTo(null)}>{t("Reset the zoom")}</Button>}
      <Choice<T>
        label={t("How far back")}
        value={spanOf(allowed)}
        options={allowed.map((one) => [one, texts[one]])}
        onPick={(span) => refine({ span: span === allowed[0] ? null : span, zoom: null })}
      />
    </>
  );
}
