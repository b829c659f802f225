/** The part of JSON Schema that a small form can show; everything else is edited as JSON. */

export interface JsonSchema {
  type?: string | string[];
  title?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  format?: string;
  properties?: Record<string, JsonSchema>;
  required?: string[];
  items?: JsonSchema;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
}

export type FieldKind = "string" | "text" | "number" | "boolean" | "enum" | "strings" | "object" | "json";

function typeOf(schema: JsonSchema): string | undefined {
  // "string or null" is a string that may be left empty.
  return Array.isArray(schema.type) ? schema.type.find((name) => name !== "null") : schema.type;
}

export function kindOf(schema: JsonSchema): FieldKind {
  if (schema.enum) return "enum";
  const type = typeOf(schema);
  if (type === "string") return schema.format === "multiline" || (schema.maxLength ?? 0) > 200 ? "text" : "string";
  if (type === "number" || type === "integer") return "number";
  if (type === "boolean") return "boolean";
  if (type === "array" && schema.items && typeOf(schema.items) === "string" && !schema.items.enum) return "strings";
  if (type === "object" && schema.properties) return "object";
  return "json";
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** What a form begins with: defaults where there are some, nothing else that the user did not say. */
export function defaultsOf(schema: JsonSchema): unknown {
  if (schema.default !== undefined) return schema.default;
  if (schema.const !== undefined) return schema.const;
  if (kindOf(schema) !== "object") return undefined;
  const entries = Object.entries(schema.properties ?? {}).map(([name, child]) => [name, defaultsOf(child)] as const);
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}

function scalarProblem(schema: JsonSchema, value: unknown): string | null {
  if (schema.enum && !schema.enum.includes(value)) return "Choose one of the values";
  const type = typeOf(schema);
  if (type === "integer" && !Number.isInteger(value)) return "Must be a whole number";
  if (type === "number" && typeof value !== "number") return "Must be a number";
  if (type === "boolean" && typeof value !== "boolean") return "Must be yes or no";
  if (type === "string" && typeof value !== "string") return "Must be text";
  if (type === "array" && !Array.isArray(value)) return "Must be a list";
  if (typeof value === "number") {
    if (schema.minimum !== undefined && value < schema.minimum) return `Must be at least ${schema.minimum}`;
    if (schema.maximum !== undefined && value > schema.maximum) return `Must be at most ${schema.maximum}`;
  }
  if (typeof value === "string") {
    if (schema.minLength !== undefined && value.length < schema.minLength) return `Needs at least ${schema.minLength} characters`;
    if (schema.maxLength !== undefined && value.length > schema.maxLength) return `Takes at most ${schema.maxLength} characters`;
  }
  return null;
}

/** What is wrong with a value, by the path of the field ("address.city"; "" is the whole). The server checks the rest. */
export function problemsOf(schema: JsonSchema, value: unknown, path = ""): Record<string, string> {
  if (typeOf(schema) === "object" && schema.properties) {
    if (!isRecord(value)) return { [path]: "Must be an object" };
    const problems: Record<string, string> = {};
    for (const [name, child] of Object.entries(schema.properties)) {
      const below = path ? `${path}.${name}` : name;
      const given = value[name];
      if (given === undefined || given === null || given === "") {
        if (schema.required?.includes(name)) problems[below] = "Required";
      } else {
        Object.assign(problems, problemsOf(child, given, below));
      }
    }
    return problems;
  }
  const problem = scalarProblem(schema, value);
  return problem ? { [path]: problem } : {};
}
