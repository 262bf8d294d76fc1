// The palette: type a few letters, press Enter. Views, queues, jobs by their id, and what can be done.
import { useMemo, useRef, useState } from "preact/hooks";
import { at, get } from "../api";
import { queues } from "../live";
import { pauseOrResume } from "../queue-actions";
import { go, to } from "../route";
import { logOut, operator } from "../session";
import { nextTheme } from "../theme";
import { entries } from "../views";
import { language, languages, speak, t } from "../words";
import type { Job } from "../wire";
import { Dialog } from "./dialog";
import { Icon, type IconName } from "./icon";
import { asksForReasons, askForReasons } from "./reason";

interface Item {
  text: string;
  note?: string;
  icon: IconName;
  act: () => unknown;
}

export function Palette({ onClose }: { onClose: () => void }) {
  const [typed, setTyped] = useState("");
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const all = useMemo(everything, [queues.value, language.value]);
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((one) => words.every((word) => `${one.text} ${one.note ?? ""}`.toLowerCase().includes(word))).slice(0, 12);
  if (typed.trim().length >= 3) {
    found.push({ text: t("Search jobs: {words}", { words: typed.trim() }), note: t("in all queues"), icon: "search", act: () => findJob(typed.trim()) });
  }
  const at = Math.min(chosen, found.length - 1);
  const act = (item: Item | undefined) => {
    if (!item) return;
    onClose();
    void item.act();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const next = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % Math.max(found.length, 1);
      setChosen(next);
      list.current?.children[next]?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      act(found[at]);
    }
  };
  return (
    <Dialog title={t("Find or run …")} onClose={onClose}>
      <div class="palette">
        <input
          type="text"
          role="combobox"
          aria-expanded="true"
          aria-controls="palette-list"
          aria-activedescendant={found.length ? `palette-${at}` : undefined}
          aria-label={t("Find or run …")}
          placeholder={t("A view, a queue, the id of a job …")}
          autofocus
          autocomplete="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => {
            setTyped(event.currentTarget.value);
            setChosen(0);
          }}
          onKeyDown={press}
        />
        <ul id="palette-list" role="listbox" aria-label={t("Found")} ref={list}>
          {found.map((one, n) => (
            <li key={one.text + one.note} id={`palette-${n}`} role="option" aria-selected={n === at} onMouseMove={() => setChosen(n)} onClick={() => act(one)}>
              <Icon name={one.icon} />
              <span>{one.text}</span>
              {one.note && <small>{one.note}</small>}
            </li>
          ))}
          {!found.length && <li class="faint" role="option" aria-selected="false">{t("No match")}</li>}
        </ul>
      </div>
    </Dialog>
  );
}

function everything(): Item[] {
  const items: Item[] = entries.map((one) => ({ text: t(one.text), note: t("view"), icon: one.icon, act: () => go(one.href()) }));
  for (const [name, stats] of Object.entries(queues.value ?? {})) {
    items.push({ text: name, note: t("queue"), icon: "queues", act: () => go(to.queue(name)) });
    items.push({ text: name, note: t("failed jobs"), icon: "failed", act: () => go(to.jobs(name, "failed")) });
    if (operator.value) {
      items.push({
        text: stats.isPaused ? t("Resume {queue}", { queue: name }) : t("Pause {queue}", { queue: name }),
        note: t("action"),
        icon: stats.isPaused ? "play" : "pause",
        act: async () => pauseOrResume(name, stats.isPaused),
      });
    }
  }
  if (operator.value) {
    const asks = asksForReasons.value;
    items.push({ text: asks ? t("Ask for a reason only in dialogs") : t("Ask me for a reason before every action"), note: t("action"), icon: "edit", act: () => askForReasons(!asks) });
  }
  items.push({ text: t("Change between light and dark"), note: t("action"), icon: "moon", act: nextTheme });
  for (const [code, text] of languages) {
    if (code !== language.value) items.push({ text, note: t("language"), icon: "edit", act: () => speak(code) });
  }
  items.push({ text: t("Log out"), note: t("action"), icon: "leave", act: logOut });
  return items;
}

/** The job with this id, or all jobs that have the words in them. */
async function findJob(id: string): Promise<void> {
  const names = Object.keys(queues.value ?? {});
  const found = await Promise.any(names.map((name) => get<Job>(at.job(name, id)))).catch(() => null);
  go(found ? to.job(found.queue, found.id) : to.search(id));
}
