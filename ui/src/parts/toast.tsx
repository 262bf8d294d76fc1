// Toasts: short words about what was done or could not be.
import { signal } from "@preact/signals";
import { Problem } from "../api";
import { t } from "../words";
import { Icon } from "./icon";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
  link?: { text: string; href: string };
}

const toasts = signal<Toast[]>([]);
let last = 0;

export function say(text: string, { bad = false, link }: { bad?: boolean; link?: Toast["link"] } = {}): void {
  const id = ++last;
  toasts.value = [...toasts.value.slice(-3), { id, text, bad, link }];
  setTimeout(() => hush(id), bad ? 9000 : 5000);
}

function hush(id: number): void {
  toasts.value = toasts.value.filter((one) => one.id !== id);
}

/** Do something and say how it went; gives whether it went well. */
export async function doing(what: () => Promise<unknown>, well: string, link?: Toast["link"]): Promise<boolean> {
  try {
    await what();
  } catch (error) {
    say(error instanceof Problem ? error.message : String(error), { bad: true });
    return false;
  }
  say(well, { link });
  return true;
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((one) => (
        <div key={one.id} class={`toast ${one.bad ? "bad" : ""}`}>
          <Icon name={one.bad ? "failed" : "done"} />
          <span class="toast-text">{one.text}</span>
          {one.link && <a href={one.link.href}>{one.link.text}</a>}
          <button type="button" class="toast-close" aria-label={t("Close")} onClick={() => hush(one.id)}>
            <Icon name="close" size={13} />
          </button>
        </div>
      ))}
    </div>
  );
}
