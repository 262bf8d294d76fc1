// The keyboard: go with g and a letter, move along rows with j and k, open with Enter, choose with x.
import { useEffect } from "preact/hooks";
import { go } from "./route";
import { entries } from "./views";

interface Doing {
  palette: () => void;
  help: () => void;
}

export function useKeys({ palette, help }: Doing): void {
  useEffect(() => {
    let after = "";
    let timer = 0;
    const press = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        palette();
        return;
      }
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || isTyping(event.target)) return;
      const key = event.key;
      if (after === "g") {
        after = "";
        const entry = entries.find((one) => one.letter === key);
        if (entry) go(entry.href());
        return;
      }
      if (key === "g") {
        after = "g";
        clearTimeout(timer);
        timer = window.setTimeout(() => (after = ""), 1200);
      } else if (key === "?") help();
      else if (key === "/") focusFilter(event);
      else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
      else if (key === "x") row()?.querySelector<HTMLInputElement>("input[type=checkbox]")?.click();
      else if (key === "Enter" && row() === document.activeElement) row()?.querySelector<HTMLAnchorElement>("a")?.click();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function isTyping(target: EventTarget | null): boolean {
  const one = target as HTMLElement | null;
  return !!one && (one.isContentEditable || ["TEXTAREA", "SELECT"].includes(one.tagName) || (one instanceof HTMLInputElement && one.type !== "checkbox"));
}

function row(): HTMLElement | null {
  return (document.activeElement?.closest("[data-row]") as HTMLElement | null) ?? null;
}

function step(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main [data-row]")];
  const here = row();
  const at = here ? rows.indexOf(here) + by : by > 0 ? 0 : rows.length - 1;
  rows[Math.max(0, Math.min(at, rows.length - 1))]?.focus();
}

function focusFilter(event: KeyboardEvent): void {
  const field = document.querySelector<HTMLInputElement>("main [data-filter] input, main [data-filter] select");
  if (field) {
    event.preventDefault();
    field.focus();
  }
}
