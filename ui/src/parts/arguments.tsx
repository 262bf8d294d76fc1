// The arguments of a task as JSON: compared with its schema while one writes, with the fields and values that it knows.
import { useId, useRef } from "preact/hooks";
import { at } from "../api";
import { useAsk } from "../ask";
import { t } from "../words";
import type { Queue } from "../wire";
import { type Misfit, misfitsOf } from "./schema-check";
import { resolved, type Schema } from "./schema-form";

interface ArgumentsProps {
  queue: string;
  task: string;
  value: string;
  onInput: (value: string) => void;
  rows?: number;
}

const SAMPLES: Record<string, unknown> = { integer: 0, number: 0, boolean: false, array: [], object: {}, string: "" };

export function ArgumentsField({ queue, task, value, onInput, rows = 8 }: ArgumentsProps) {
  const id = useId();
  const area = useRef<HTMLTextAreaElement>(null);
  const asked = useAsk<Queue>(queue ? at.queue(queue) : null);
  const schema = (asked.data?.tasks.find((one) => one.name === task)?.arguments ?? null) as Schema | null;
  const { made, misfits } = read(value, schema);
  const definitions = (schema?.$defs ?? {}) as Record<string, Schema>;
  const properties = Object.entries((resolved(schema ?? {}, definitions).properties ?? {}) as Record<string, Schema>).map(([name, of]) => [name, resolved(of, definitions)] as const);
  const set = (name: string, to: unknown) => made && onInput(JSON.stringify({ ...made, [name]: to }, null, 2));
  const select = (misfit: Misfit) => {
    const [start, end] = placeOf(value, misfit.path);
    area.current?.focus();
    area.current?.setSelectionRange(start, end);
  };
  return (
    <div class="field wide arguments-field">
      <label for={id}>{t("Arguments (JSON)")}</label>
      <textarea ref={area} id={id} class="mono" rows={rows} value={value} spellcheck={false} aria-invalid={misfits.length > 0} aria-describedby={`${id}-misfits`} onInput={(event) => onInput(event.currentTarget.value)} />
      <ul id={`${id}-misfits`} class="misfits" role="status">
        {misfits.map((one) => (
          <li key={one.path.join(".") + one.text}>
            <button type="button" class="as-link bad-text" onClick={() => select(one)}>
              {t("line {n}", { n: value.slice(0, placeOf(value, one.path)[0]).split("\n").length })}: {one.path.length > 0 && <b class="mono">{one.path.join(".")}</b>} {one.text}
            </button>
          </li>
        ))}
      </ul>
      {made && properties.length > 0 && (
        <div class="offered">
          {properties.filter(([name]) => !Object.hasOwn(made, name)).map(([name, of]) => (
            <button key={name} type="button" class="button small" aria-label={t("Add {name}", { name })} onClick={() => set(name, sampleOf(of))}>+ {name}</button>
          ))}
          {properties.filter(([name, of]) => Object.hasOwn(made, name) && Array.isArray(of.enum)).map(([name, of]) => (
            <label key={name} class="offered-values">
              <span class="mono">{name}</span>
              <select value={JSON.stringify(made[name])} onInput={(event) => set(name, JSON.parse(event.currentTarget.value))}>
                {[...new Set([JSON.stringify(made[name]), ...(of.enum as unknown[]).map((one) => JSON.stringify(one))])].map((one) => <option key={one} value={one} selected={one === JSON.stringify(made[name])}>{one}</option>)}
              </select>
            </label>
          ))}
        </div>
      )}
    </div>
  );
}

/** The object that the text is, and what does not fit the schema. */
function read(text: string, schema: Schema | null): { made: Record<string, unknown> | null; misfits: Misfit[] } {
  try {
    const made = JSON.parse(text || "{}") as unknown;
    if (typeof made !== "object" || made === null || Array.isArray(made)) return { made: null, misfits: [{ path: [], text: t("The arguments must be an object, by their names") }] };
    return { made: made as Record<string, unknown>, misfits: misfitsOf(schema, made) };
  } catch (error) {
    return { made: null, misfits: [{ path: [], text: t("The arguments are no JSON: {why}", { why: (error as Error).message }) }] };
  }
}

/** Where a path is in the text: its last name that is there, each after the one before. */
function placeOf(text: string, path: Misfit["path"]): [number, number] {
  let place: [number, number] = [0, 0];
  for (const name of path) {
    const key = JSON.stringify(String(name));
    const found = typeof name === "string" ? text.indexOf(key, place[1]) : -1;
    if (found >= 0) place = [found, found + key.length];
  }
  return place;
}

function sampleOf(schema: Schema): unknown {
  if (schema.default !== undefined) return schema.default;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  return SAMPLES[String(schema.type)] ?? null;
}
