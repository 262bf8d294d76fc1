// The arguments of a task, as its JSON Schema says them.
type Schema = Record<string, unknown>;

interface Argument {
  type?: string;
  default?: unknown;
}

/** What a schema leads to, which may be one of its own definitions. */
function resolved(schema: Schema | null): Schema {
  const to = typeof schema?.$ref === "string" ? schema.$ref.split("/").pop() : undefined;
  const definitions = (schema?.$defs ?? {}) as Record<string, Schema>;
  return (to && definitions[to]) || schema || {};
}

/** Their names, with a question mark those that may be left away. */
export function argumentsOf(schema: Schema | null): string {
  const { properties, required } = resolved(schema) as { properties?: Record<string, Argument>; required?: string[] };
  return Object.keys(properties ?? {})
    .map((one) => (required?.includes(one) ? one : `${one}?`))
    .join(", ");
}

/** Arguments with something of the right kind in them, to begin with. */
export function sample(schema: Schema | null): string {
  const { properties, required } = resolved(schema) as { properties?: Record<string, Argument>; required?: string[] };
  const made: Record<string, unknown> = {};
  for (const [name, of] of Object.entries(properties ?? {})) {
    if (required?.includes(name)) made[name] = { integer: 0, number: 0, boolean: false, array: [], object: {} }[of.type ?? ""] ?? "";
  }
  return JSON.stringify(made, null, 2);
}
