// Words: the page speaks English; other languages are a table from the English text, loaded where they are wanted.
// A text that is missing from the tables is an error of the build.
import { computed, signal } from "@preact/signals";
import type { spanish } from "./words/es";
import type { Sentence } from "./words/es-server";

export type Text = keyof typeof spanish;
export type Language = "en" | "es" | "es-AR";

/** Each by its own name. */
export const languages: [Language, string][] = [
  ["en", "English"],
  ["es", "Español"],
  ["es-AR", "Español (Argentina)"],
];

let table: Record<string, string> = {};
let sentences: Sentence[] = [];
export const language = signal<Language>("en");
/** The language as it is written where the browser is: en-GB, es-AR. */
export const locale = computed(() => navigator.languages.find((one) => one.startsWith(language.value)) ?? language.value);

export async function speak(wanted: Language): Promise<void> {
  const [words, said, local] = wanted === "en" ? [] : await Promise.all([import("./words/es"), import("./words/es-server"), wanted === "es-AR" ? import("./words/es-ar") : null]);
  const here = (text: string) => (local?.argentine ?? []).reduce((all, [neutral, own]) => all.replace(neutral, own), text);
  table = Object.fromEntries(Object.entries(words?.spanish ?? {}).map(([text, one]) => [text, here(one)]));
  sentences = (said?.sentences ?? []).map(([form, one]) => [form, here(one)]);
  language.value = wanted;
  document.documentElement.lang = wanted;
  localStorage.setItem("qbull.language", wanted);
}

export function speakAsBefore(): Promise<void> {
  const kept = localStorage.getItem("qbull.language") ?? navigator.language;
  return speak(kept === "es-AR" ? kept : kept.startsWith("es") ? "es" : "en");
}

/** The other language: Spanish as it is spoken where the browser is, or English. */
export function otherLanguage(): Language {
  if (language.value !== "en") return "en";
  return navigator.languages.includes("es-AR") ? "es-AR" : "es";
}

/** `{n}` and others are filled in; of "one|many" the form is chosen that fits `n`. */
export function t(text: Text, values: Record<string, string | number> = {}): string {
  const said = language.value === "en" ? text : (table[text] ?? text);
  const forms = said.split("|");
  const form = forms.length > 1 ? (Number(values.n) === 1 ? forms[0] : forms[1]) : said;
  return (form ?? said).replace(/\{(\w+)\}/g, (_, name: string) =>
    typeof values[name] === "number" ? new Intl.NumberFormat(locale.value).format(values[name] as number) : String(values[name] ?? ""),
  );
}

/** A sentence of the server, which speaks English. One that is not known is shown as it came. */
export function translated(text: string): string {
  for (const [form, said] of sentences) {
    const found = form.exec(text);
    if (found) return said.replace(/\$(\d)/g, (_, n: string) => found[Number(n)] ?? "");
  }
  return text;
}
