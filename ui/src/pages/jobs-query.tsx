// The query bar: completes fields and values, says what is wrong with a query, and keeps views by name.
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { useAsk } from "../ask";
import { queues } from "../live";
import { Button, STATES } from "../parts/basics";
import { Icon } from "../parts/icon";
import { quoted, termsOf } from "../query";
import { refine, to } from "../route";
import { t, translated, type Text } from "../words";
import type { Facets, QueryFields } from "../wire";

interface Choice {
  /** Replaces the term at the caret. */
  text: string;
  note: string;
}

const SPANS = ["15m", "1h", "24h", "7d", "today", "yesterday"];

/** What the term at the caret may become. */
function choices(query: string, caret: number, fields: QueryFields | undefined, facets: Facets | undefined): { start: number; end: number; list: Choice[] } {
  const at = termsOf(query).find((one) => one.start < caret && caret <= one.end);
  const typed = at ? query.slice(at.start, caret) : "";
  const place = { start: at?.start ?? caret, end: at?.end ?? caret };
  const sign = typed.startsWith("-") ? "-" : "";
  const [field, ...rest] = typed.slice(sign.length).split(":");
  const named = facets?.facets.map((one) => one.field).filter((one) => one.startsWith("args.")) ?? [];
  if (rest.length === 0) {
    const known: Choice[] = [
      ...(fields?.fields.filter((one) => one.name !== "args.NAME").map((one) => ({ text: `${sign}${one.name}:`, note: translated(one.help) })) ?? []),
      ...named.map((one) => ({ text: `${sign}${one}:`, note: t("Argument") })),
    ];
    return { ...place, list: known.filter((one) => one.text.startsWith(typed) && one.text !== typed) };
  }
  const before = rest.join(":").split(",");
  const last = before.pop() ?? "";
  const start = `${sign}${field}:${before.map((one) => `${one},`).join("")}`;
  const seen = facets?.facets.find((one) => one.field === field)?.values ?? [];
  const values: Choice[] =
    field === "state"
      ? STATES.map((one) => ({ text: one, note: t(one) }))
      : field === "queue"
        ? Object.keys(queues.value ?? {}).sort().map((one) => ({ text: one, note: "" }))
        : field === "since" || field === "until"
          ? SPANS.map((one) => ({ text: one, note: "" }))
          : seen.map((one) => ({ text: quoted(one.value), note: one.label ?? t("{n} job|{n} jobs", { n: one.count }) }));
  const fit = values.filter((one) => one.text.replace(/^"/, "").toLowerCase().includes(last.replace(/^"/, "").toLowerCase()));
  return { ...place, list: fit.map((one) => ({ text: start + one.text, note: one.note })).filter((one) => one.text !== typed) };
}

export function QueryBar({ query, facets, error }: { query: string; facets: Facets | undefined; error: string | null }) {
  const [typed, setTyped] = useState(query);
  const [meant, setMeant] = useState(query);
  if (meant !== query) {
    // The address has another query. An effect would also run after the first paint, and clear what was typed since.
    setMeant(query);
    setTyped(query);
  }
  const [caret, setCaret] = useState(query.length);
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const fields = useAsk<QueryFields>("api/query-fields");
  const found = choices(typed, caret, fields.data, facets);
  const list = open ? found.list.slice(0, 9) : [];
  const placed = useRef<number | null>(null);
  useLayoutEffect(() => {
    // Before the next key: after a frame, the caret would jump back over what was typed meanwhile.
    if (placed.current !== null) input.current?.setSelectionRange(placed.current, placed.current);
    placed.current = null;
  });
  const moved = () => setCaret(input.current?.selectionStart ?? typed.length);

  const take = (choice: Choice) => {
    const done = !choice.text.endsWith(":");
    const text = `${typed.slice(0, found.start)}${choice.text}${done ? " " : ""}${typed.slice(found.end).replace(/^\s+/, done ? "" : " ")}`;
    const at = found.start + choice.text.length + (done ? 1 : 0);
    setTyped(text);
    setCaret(at);
    setChosen(-1);
    setOpen(true);
    placed.current = at;
  };
  const submit = (event?: Event) => {
    event?.preventDefault();
    setOpen(false);
    refine({ ...Object.fromEntries(OLD.map((one) => [one, null])), q: typed.trim() });
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Escape" && open) setOpen(false);
    else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && found.list.length) {
      event.preventDefault();
      setOpen(true);
      const n = Math.min(found.list.length, 9);
      setChosen((before) => (event.key === "ArrowDown" ? (before + 1) % n : (before + n) % (n + 1) - 1 < 0 ? n - 1 : before - 1));
    } else if ((event.key === "Enter" || event.key === "Tab") && open && list[chosen]) {
      event.preventDefault();
      take(list[chosen] as Choice);
    }
  };
  return (
    <form class="query" data-filter onSubmit={submit} role="search">
      <div class="query-box">
        <Icon name="search" />
        <input
          ref={input}
          class="mono"
          role="combobox"
          aria-label={t("Query")}
          aria-expanded={list.length > 0}
          aria-controls={`${id}-list`}
          aria-activedescendant={chosen >= 0 && list[chosen] ? `${id}-${chosen}` : undefined}
          aria-invalid={error ? "true" : undefined}
          aria-describedby={error ? `${id}-error` : undefined}
          placeholder={'queue:email state:failed args.user_id:u1 error:"timeout" since:1h'}
          autocomplete="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => {
            setTyped(event.currentTarget.value);
            setOpen(true);
            setChosen(-1);
            moved();
          }}
          onClick={() => {
            moved();
            setOpen(true);
          }}
          onKeyUp={moved}
          onKeyDown={press}
          onBlur={() => setOpen(false)}
        />
        {typed && (
          <Button kind="ghost" small icon="close" label={t("Clear the query")} onClick={() => { setTyped(""); refine({ ...Object.fromEntries(OLD.map((one) => [one, null])), q: null }); input.current?.focus(); }} />
        )}
        <button type="submit" class="button primary small">{t("Search")}</button>
        <ul id={`${id}-list`} class="query-choices" role="listbox" aria-label={t("Suggestions")} hidden={list.length === 0}>
          {list.map((one, n) => (
            <li key={one.text} id={`${id}-${n}`} role="option" aria-selected={n === chosen} onMouseDown={(event) => { event.preventDefault(); take(one); }}>
              <span class="mono">{one.text}</span>
              <small class="cut">{one.note}</small>
            </li>
          ))}
        </ul>
      </div>
      {error && <p class="query-error" id={`${id}-error`} role="alert">{error}</p>}
    </form>
  );
}

/** Filters of addresses from before the query language. */
export const OLD = ["queue", "state", "task", "key", "id", "errorContains", "fingerprint", "payload", "after", "before"];

interface SavedView {
  name: string;
  q: string;
}

const READY: { name: Text; q: string }[] = [
  { name: "Failed in the last hour", q: "state:failed since:1h" },
  { name: "Running now", q: "state:active" },
  { name: "Waiting and delayed", q: "state:waiting,delayed" },
];

function saved(): SavedView[] {
  try {
    return JSON.parse(localStorage.getItem("qbull.views") ?? "[]") as SavedView[];
  } catch {
    return [];
  }
}

/** Views that this browser keeps. */
export function SavedViews({ query }: { query: string }) {
  const [views, setViews] = useState(saved);
  const [name, setName] = useState("");
  const menu = useRef<HTMLDetailsElement>(null);
  const keep = (next: SavedView[]) => {
    localStorage.setItem("qbull.views", JSON.stringify(next));
    setViews(next);
  };
  const close = () => {
    if (menu.current) menu.current.open = false;
  };
  return (
    <details class="menu" ref={menu} onKeyDown={(event) => event.key === "Escape" && close()}>
      <summary class="button small"><Icon name="jobs" size={14} />{t("Saved views")}<Icon name="down" size={12} /></summary>
      <div class="menu-in">
        <ul>
          {READY.map((one) => (
            <li key={one.q}><a href={to.search(one.q)} onClick={close}>{t(one.name)}</a></li>
          ))}
          {views.map((one) => (
            <li key={one.name}>
              <a href={to.search(one.q)} title={one.q} onClick={close}>{one.name}</a>
              <Button kind="ghost" small icon="trash" label={t("Delete the view {name}", { name: one.name })} onClick={() => keep(views.filter((each) => each !== one))} />
            </li>
          ))}
        </ul>
        <form
          onSubmit={(event) => {
            event.preventDefault();
            if (!name.trim()) return;
            keep([...views.filter((one) => one.name !== name.trim()), { name: name.trim(), q: query }]);
            setName("");
          }}
        >
          <input aria-label={t("Name of the view")} placeholder={t("Name of the view")} value={name} onInput={(event) => setName(event.currentTarget.value)} />
          <button type="submit" class="button small" disabled={!name.trim()}>{t("Save this query")}</button>
        </form>
      </div>
    </details>
  );
}
