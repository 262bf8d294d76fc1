// Compare a value with a JSON Schema while somebody writes it. The server checks it again, by the code of the task.
import { count } from "../format";
import { t } from "../words";
import { resolved, type Schema } from "./schema-form";

/** What does not fit, and where: the names and indexes that lead there. */
export interface Misfit {
  path: (string | number)[];
  text: string;
}

type Definitions = Record<string, Schema>;

const MOST_MISFITS = 6;
const DEEPEST = 20;

/** What does not fit. A keyword that is not known here refuses nothing. */
export function misfitsOf(schema: Schema | null, value: unknown): Misfit[] {
  if (!schema) return [];
  return [...check(schema, (schema.$defs ?? {}) as Definitions, value, [])].slice(0, MOST_MISFITS);
}

function* check(given: Schema, definitions: Definitions, value: unknown, path: Misfit["path"]): Generator<Misfit> {
  if (path.length > DEEPEST) return;
  const schema = resolved(given, definitions);
  const choices = (schema.anyOf ?? schema.oneOf) as Schema[] | undefined;
  if (choices) {
    const found = choices.map((one) => [...check(one, definitions, value, path)]);
    // The choice that fits best tells what is wrong: one whose type fits has fewer misfits at this place.
    if (found.every((some) => some.length > 0)) yield* found.sort((a, b) => b[0]!.path.length - a[0]!.path.length)[0]!;
    return;
  }
  if (Array.isArray(schema.enum) && !schema.enum.includes(value)) {
    yield { path, text: t("must be one of {values}", { values: schema.enum.map((one) => JSON.stringify(one)).join(", ") }) };
    return;
  }
  const types = ([] as string[]).concat((schema.type as string | string[] | undefined) ?? []);
  if (types.length && !types.some((one) => isOf(one, value))) {
    yield { path, text: t("must be {type}", { type: types.join(" / ") }) };
    return;
  }
  if (typeof value === "number") {
    if (typeof schema.minimum === "number" && value < schema.minimum) yield { path, text: t("must be at least {n}", { n: count(schema.minimum) }) };
    if (typeof schema.maximum === "number" && value > schema.maximum) yield { path, text: t("must be at most {n}", { n: count(schema.maximum) }) };
  } else if (Array.isArray(value)) {
    if (schema.items) for (const [n, one] of value.entries()) yield* check(schema.items as Schema, definitions, one, [...path, n]);
  } else if (typeof value === "object" && value !== null) yield* checkObject(schema, definitions, value as Record<string, unknown>, path);
}

function* checkObject(schema: Schema, definitions: Definitions, value: Record<string, unknown>, path: Misfit["path"]): Generator<Misfit> {
  const properties = (schema.properties ?? {}) as Record<string, Schema>;
  for (const name of (schema.required ?? []) as string[]) {
    if (!Object.hasOwn(value, name)) yield { path: [...path, name], text: t("is missing") };
  }
  for (const [name, one] of Object.entries(value)) {
    if (Object.hasOwn(properties, name)) yield* check(properties[name]!, definitions, one, [...path, name]);
    else if (schema.additionalProperties === false) yield { path: [...path, name], text: t("is not known to the task") };
    else if (typeof schema.additionalProperties === "object") yield* check(schema.additionalProperties as Schema, definitions, one, [...path, name]);
  }
}

function isOf(type: string, value: unknown): boolean {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "object") return typeof value === "object" && value !== null && !Array.isArray(value);
  if (type === "integer") return typeof value === "number" && Number.isInteger(value);
  return typeof value === type;
}
