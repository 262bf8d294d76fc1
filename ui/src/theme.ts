// Light, dark, or as the system has it.
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

export const theme = signal<Theme>((localStorage.getItem("qbull.theme") as Theme | null) ?? "system");
/** Charts are drawn, not styled: they look at this. */
export const dark = signal(false);

const system = matchMedia("(prefers-color-scheme: dark)");

function apply(): void {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
  dark.value = theme.value === "dark" || (theme.value === "system" && system.matches);
}

system.addEventListener("change", apply);
apply();

export function setTheme(wanted: Theme): void {
  theme.value = wanted;
  localStorage.setItem("qbull.theme", wanted);
  apply();
}

export function nextTheme(): void {
  setTheme(theme.value === "system" ? (dark.value ? "light" : "dark") : theme.value === "dark" ? "light" : "dark");
}
