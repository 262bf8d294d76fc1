// The text of a query, as far as the page edits it: its terms, and how a value is written. The server parses it.
import type { Query } from "./route";

export interface Term {
  text: string;
  /** Where it starts and ends in the query. */
  start: number;
  end: number;
  negated: boolean;
  /** Empty for a word. */
  field: string;
  value: string;
}

/** The terms of a query; one that is not finished yet counts as well. */
export function termsOf(query: string): Term[] {
  const terms: Term[] = [];
  for (const found of query.matchAll(/(?:"(?:\\.|[^"\\])*"?|\S)+/g)) {
    const text = found[0];
    const parts = /^(-?)([A-Za-z][^\s:",*]*):([\s\S]*)$/.exec(text);
    terms.push({
      text,
      start: found.index,
      end: found.index + text.length,
      negated: text.startsWith("-"),
      field: parts?.[2] ?? "",
      value: parts?.[3] ?? text.replace(/^-/, ""),
    });
  }
  return terms;
}

export function quoted(value: string): string {
  return /^[^\s",*]+$/.test(value) ? value : `"${value.replace(/(["\\])/g, "\\$1")}"`;
}

export function term(field: string, value: string): string {
  return `${field}:${quoted(value)}`;
}

export function hasTerm(query: string, field: string, value: string): boolean {
  return termsOf(query).some((one) => !one.negated && one.field === field && one.value.split(",").includes(quoted(value)));
}

/** The query with a value chosen, or without it if it was. Values of one field are alternatives. */
export function toggled(query: string, field: string, value: string): string {
  const text = quoted(value);
  const terms = termsOf(query);
  const there = terms.find((one) => !one.negated && one.field === field);
  if (!there) return [query.trim(), term(field, value)].filter(Boolean).join(" ");
  const values = there.value.split(",");
  const left = values.includes(text) ? values.filter((one) => one !== text) : field.startsWith("args.") ? [text] : [...values, text];
  return terms
    .map((one) => (one === there ? (left.length ? `${field}:${left.join(",")}` : "") : one.text))
    .filter(Boolean)
    .join(" ");
}

export function without(query: string, unwanted: Term): string {
  return `${query.slice(0, unwanted.start)}${query.slice(unwanted.end)}`.replace(/\s+/g, " ").trim();
}

const FIELDS: Record<string, string> = { queue: "queue", state: "state", task: "task", key: "key", id: "id", errorContains: "error", fingerprint: "fingerprint", after: "since", before: "until" };

/** A query of single filters. */
export function queryOf(filters: Query): string {
  const terms = Object.entries(filters).flatMap(([name, value]) => {
    if (value === null || value === undefined || value === "") return [];
    if (name === "payload") {
      const [path, ...rest] = String(value).split("=");
      return [term(`args.${path}`, rest.join("="))];
    }
    return FIELDS[name] ? [term(FIELDS[name], String(value))] : [];
  });
  return terms.join(" ");
}
