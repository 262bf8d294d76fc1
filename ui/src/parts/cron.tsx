// When a schedule runs, in words. The library that knows them is loaded with the first schedule.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { duration } from "../format";
import { language, t } from "../words";
import type { Schedule } from "../wire";

interface Library {
  toString(expression: string, options: { locale: string; use24HourTimeFormat: boolean; throwExceptionOnParseError: boolean }): string;
}

const library = signal<Library | null>(null);
let asked = false;

async function load(): Promise<void> {
  if (asked) return;
  asked = true;
  try {
    library.value = (await import("./cron-words")).words;
  } catch {
    asked = false; // the expression itself is shown
  }
}

/** "At 09:00, Monday through Friday"; the expression itself is below it. */
export function Rule({ one }: { one: Pick<Schedule, "cron" | "every" | "tz"> }) {
  useEffect(() => void load(), []);
  if (one.cron === null) return <span>{t("every {time}", { time: duration((one.every ?? 0) * 1000) })}</span>;
  const said = inWords(one.cron);
  return (
    <span class="rule-words">
      {said && <span>{said}</span>}
      <span class="faint nowrap">
        <code>{one.cron}</code> {one.tz}
      </span>
    </span>
  );
}

function inWords(cron: string): string {
  try {
    return library.value?.toString(cron, { locale: language.value.slice(0, 2), use24HourTimeFormat: true, throwExceptionOnParseError: true }) ?? "";
  } catch {
    return ""; // a rule that it does not know
  }
}
