// A form from a JSON Schema: a field for each plain value. Whatever it cannot show becomes a field for JSON.
import { useId } from "preact/hooks";
import { t } from "../words";
import { Area, Field, Select } from "./field";

export type Schema = Record<string, unknown>;
/** What people have written so far: by the name of the field; "" is the value as a whole. */
export type Written = Record<string, string>;

interface Plain {
  name: string;
  kind: "text" | "number" | "boolean" | "choice" | "json";
  choices: unknown[];
  required: boolean;
}

/** What a schema leads to, which may be one of its own definitions. */
export function resolved(schema: Schema, definitions: Record<string, Schema>): Schema {
  const name = typeof schema.$ref === "string" ? schema.$ref.split("/").pop() : undefined;
  return (name && definitions[name]) || schema;
}

function plainOf(name: string, schema: Schema, required: boolean): Plain {
  const choices = Array.isArray(schema.enum) ? schema.enum : [];
  const kind = choices.length ? "choice" : schema.type === "string" ? "text" : schema.type === "integer" || schema.type === "number" ? "number" : schema.type === "boolean" ? "boolean" : "json";
  return { name, kind, choices, required };
}

/** The fields of a type. One with an empty name stands for the whole value. */
export function fieldsOf(schema: Schema | null): Plain[] {
  const definitions = (schema?.$defs ?? {}) as Record<string, Schema>;
  const whole = resolved(schema ?? {}, definitions);
  const properties = whole.properties as Record<string, Schema> | undefined;
  if (whole.type !== "object" || !properties) return [plainOf("", whole, true)];
  const required = (whole.required ?? []) as string[];
  return Object.entries(properties).map(([name, of]) => plainOf(name, resolved(of, definitions), required.includes(name)));
}

/** The value that was written. Throws where a field has no JSON. */
export function valueOf(fields: Plain[], written: Written): unknown {
  const made: Record<string, unknown> = {};
  for (const field of fields) {
    const text = written[field.name] ?? "";
    if (text === "" && !field.required) continue;
    const value = one(field, text);
    if (field.name === "") return value;
    made[field.name] = value;
  }
  return made;
}

function one({ name, kind, choices }: Plain, text: string): unknown {
  if (kind === "text") return text;
  if (kind === "number") return Number(text);
  if (kind === "boolean") return text === "true";
  if (kind === "choice") return choices[Number(text) || 0];
  try {
    return JSON.parse(text || "null");
  } catch (error) {
    throw new Error(t("{name} is no JSON: {why}", { name: name || t("The value"), why: (error as Error).message }));
  }
}

export function SchemaForm({ fields, written, onWrite }: { fields: Plain[]; written: Written; onWrite: (written: Written) => void }) {
  return (
    <div class="schema-form">
      {fields.map((field) => (
        <Input key={field.name} field={field} text={written[field.name] ?? ""} onInput={(text) => onWrite({ ...written, [field.name]: text })} />
      ))}
    </div>
  );
}

function Input({ field, text, onInput }: { field: Plain; text: string; onInput: (text: string) => void }) {
  const id = useId();
  const label = field.name || t("The value");
  if (field.kind === "boolean") {
    return (
      <div class="field check">
        <input id={id} type="checkbox" checked={text === "true"} onChange={(event) => onInput(String(event.currentTarget.checked))} />
        <label for={id}>{label}</label>
      </div>
    );
  }
  if (field.kind === "choice") return <Select label={label} value={text || "0"} onInput={onInput} options={field.choices.map((one, n) => [String(n), String(one)])} />;
  if (field.kind === "json") return <Area label={`${label} (JSON)`} value={text} onInput={onInput} rows={3} />;
  return <Field label={label} type={field.kind} value={text} onInput={onInput} required={field.required && field.kind === "number"} />;
}
