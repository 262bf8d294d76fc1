// The filter of a list of jobs: fields that say what is wanted, chips that say what is in force. The address holds it.
import { useEffect, useState } from "preact/hooks";
import { at } from "../api";
import { useAsk } from "../ask";
import { moment } from "../format";
import { Button, type State } from "../parts/basics";
import { Field } from "../parts/field";
import { Icon } from "../parts/icon";
import { refine } from "../route";
import { t, type Text } from "../words";
import type { Queue, Redrive } from "../wire";

// The server's job filters, and one that only the page has: the id.
type Name = "id" | Exclude<keyof Redrive, "limit" | "rate">;
export type JobFilter = Partial<Record<Name, string>>;

const said: Record<Name, Text> = {
  id: "Id",
  task: "Task",
  key: "Key",
  errorContains: "Error contains",
  fingerprint: "Kind of error",
  payload: "Argument",
  after: "From",
  before: "Until",
};
const NAMES = Object.keys(said) as Name[];

export function filtersOf(asked: URLSearchParams): JobFilter {
  const found: JobFilter = {};
  for (const name of NAMES) {
    const value = asked.get(name);
    if (value) found[name] = value;
  }
  return found;
}

export function Filters({ queue, state, filter }: { queue: string; state: State; filter: JobFilter }) {
  const active = NAMES.filter((name) => filter[name]);
  const [open, setOpen] = useState(active.length > 0);
  const [typed, setTyped] = useState<JobFilter>(filter);
  const details = useAsk<Queue>(open ? at.queue(queue) : null);
  useEffect(() => setTyped(filter), [JSON.stringify(filter)]);
  const set = (name: Name) => (value: string) => setTyped((before) => ({ ...before, [name]: value }));
  const apply = (event: Event) => {
    event.preventDefault();
    refine({ ...Object.fromEntries(NAMES.map((name) => [name, null])), ...typed });
  };
  const local = (name: "after" | "before") => (value: string) => set(name)(value ? new Date(value).toISOString() : "");
  return (
    <div class="filters">
      <div class="chips">
        <Button small icon="filter" pressed={open} onClick={() => setOpen(!open)}>{t("Filter")}</Button>
        {active.map((name) => (
          <span class="chip" key={name}>
            <span class="faint">{t(said[name])}</span> <span class="cut">{name === "after" || name === "before" ? moment(filter[name] as string) : filter[name]}</span>
            <button type="button" aria-label={t("Without {what}", { what: t(said[name]) })} onClick={() => refine({ [name]: null })}>
              <Icon name="close" size={12} />
            </button>
          </span>
        ))}
      </div>
      {open && (
        <form class="filter-form" data-filter onSubmit={apply}>
          <Field label={t("Task")} value={typed.task ?? ""} onInput={set("task")} list={details.data?.tasks.map((one) => one.name) ?? []} />
          <Field label={t("Key")} value={typed.key ?? ""} onInput={set("key")} />
          <Field label={t("Id")} value={typed.id ?? ""} onInput={set("id")} mono />
          {(state === "failed" || state === "cancelled") && <Field label={t("Error contains")} value={typed.errorContains ?? ""} onInput={set("errorContains")} />}
          <Field label={t("Argument")} value={typed.payload ?? ""} onInput={set("payload")} placeholder="user_id=42" mono />
          <Field label={t("From")} type="datetime-local" value={localText(typed.after)} onInput={local("after")} />
          <Field label={t("Until")} type="datetime-local" value={localText(typed.before)} onInput={local("before")} />
          <div class="filter-go">
            <button type="submit" class="button primary">{t("Apply")}</button>
          </div>
        </form>
      )}
    </div>
  );
}

/** As the field wants it: local time without a zone. */
function localText(iso: string | undefined): string {
  if (!iso || Number.isNaN(Date.parse(iso))) return "";
  const at = new Date(iso);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
