// Toasts: short words about what was done or could not be, with a way back where there is one.
import { signal } from "@preact/signals";
import { because, Problem } from "../api";
import { t } from "../words";
import { Icon } from "./icon";
import { reasonForAction } from "./reason";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
  link?: { text: string; href: string };
  undo?: () => unknown;
}

interface Manner {
  bad?: boolean;
  link?: Toast["link"];
  undo?: Toast["undo"];
}

const HELD_MS = 6000;
const toasts = signal<Toast[]>([]);
/** What was asked for and is not done yet, by name. */
export const held = signal<ReadonlySet<string>>(new Set());
const waiting = new Map<string, () => void>();
let last = 0;

export function say(text: string, { bad = false, link, undo }: Manner = {}): number {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, text, bad, link, undo }];
  setTimeout(() => hush(id), bad ? 9000 : undo ? HELD_MS : 5000);
  return id;
}

function hush(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

function why(error: unknown): string {
  return error instanceof Problem ? error.message : String(error);
}

/** Do something and say how it went; gives whether it went well. `undo` does the contrary, and needs no other reason. */
export async function doing(what: () => Promise<unknown>, well: string, { link, undo }: Omit<Manner, "bad"> = {}): Promise<boolean> {
  const reason = await reasonForAction();
  if (reason === null) return false;
  return told(() => because(reason, what), well, { link, undo });
}

/** The way back from something. The audit log says that it was one. */
export function undoing(what: () => Promise<unknown>, well: string): Promise<boolean> {
  return told(() => because(t("Undo"), what), well);
}

async function told(what: () => Promise<unknown>, well: string, { link, undo }: Omit<Manner, "bad"> = {}): Promise<boolean> {
  try {
    await what();
  } catch (error) {
    say(why(error), { bad: true });
    return false;
  }
  say(well, { link, undo });
  return true;
}

/** Do what cannot be undone in a few seconds, unless somebody wants it back before. A page that is left does it at once.
 * Gives whether that has begun. */
export async function inAMoment(name: string, text: string, what: () => Promise<unknown>, back?: () => void): Promise<boolean> {
  const reason = await reasonForAction();
  if (reason === null) return false;
  const end = () => {
    clearTimeout(timer);
    waiting.delete(name);
    hush(shown);
  };
  const free = () => (held.value = new Set([...held.value].filter((one) => one !== name)));
  const act = () => {
    end();
    void because(reason, what)
      .catch((error) => say(why(error), { bad: true }))
      .finally(free);
  };
  const timer = window.setTimeout(act, HELD_MS);
  held.value = new Set([...held.value, name]);
  waiting.set(name, act);
  const shown = say(text, {
    undo: () => {
      end();
      free();
      back?.();
    },
  });
  return true;
}

addEventListener("pagehide", () => {
  for (const act of waiting.values()) act();
});

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((one) => (
        <div key={one.id} class={`toast ${one.bad ? "bad" : ""}`}>
          <Icon name={one.bad ? "failed" : "done"} />
          <span class="toast-text">{one.text}</span>
          {one.link && <a href={one.link.href}>{one.link.text}</a>}
          {one.undo && (
            <button
              type="button"
              class="toast-undo"
              onClick={() => {
                hush(one.id);
                void one.undo?.();
              }}
            >
              {t("Undo")}
            </button>
          )}
          <button type="button" class="toast-close" aria-label={t("Close")} onClick={() => hush(one.id)}>
            <Icon name="close" size={13} />
          </button>
        </div>
      ))}
    </div>
  );
}
