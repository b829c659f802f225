/** A request as somebody edits it, and the same request without the console. */

export interface Request {
  method: string;
  path: string;
  /** As one writes them, one per line: "Name: value". */
  headers: string;
  body: string;
}

export const HIDDEN = "YOUR-CREDENTIALS";

const CREDENTIALS = new Set(["authorization", "cookie", "proxy-authorization", "x-api-key"]);

/** The headers of a request, or what is wrong with a line of them. */
export function readHeaders(text: string): { headers: Record<string, string>; problem: string | null } {
  const headers: Record<string, string> = {};
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).trim();
    if (colon < 1 || !/^[\w!#$%&'*+.^`|~-]+$/.test(name)) return { headers, problem: `"${line.trim()}" is no header: write Name: value` };
    headers[name] = line.slice(colon + 1).trim();
  }
  return { headers, problem: null };
}

export function writeHeaders(headers: Record<string, string>): string {
  return Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}`)
    .join("\n");
}

/** Headers that may be shown, kept and pasted elsewhere. */
export function withoutCredentials(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, CREDENTIALS.has(name.toLowerCase()) ? HIDDEN : value]));
}

/** What is wrong with a body that is to be JSON; an empty one is none. */
export function jsonProblem(body: string): string | null {
  if (body.trim() === "") return null;
  try {
    JSON.parse(body);
    return null;
  } catch (problem) {
    return problem instanceof Error ? problem.message : "Not JSON";
  }
}

function newId(): string {
  // crypto.randomUUID exists only in secure contexts; a console on plain http elsewhere than localhost has none.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The same body with message ids of its own: a message that was sent before is the same task again. */
export function withNewMessageId(body: string, make: () => string = newId): string {
  return body.replace(/("(?:messageId|message_id)"\s*:\s*)"[^"]*"/g, (_, before: string) => `${before}"${make()}"`);
}

export const hasMessageId = (body: string): boolean => /"(?:messageId|message_id)"\s*:\s*"/.test(body);

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export interface Outgoing {
  url: string;
  method: string;
  headers: Record<string, string>;
  body: string;
  streams: boolean;
}

/** Path and base as one address: a base may end with a slash, a path begins with one. */
export const urlOf = (base: string, path: string): string => base.replace(/\/+$/, "") + path;

export function curl({ url, method, headers, body, streams }: Outgoing): string {
  const lines = [`curl ${streams ? "-N " : ""}-X ${method} ${quote(url)}`];
  for (const [name, value] of Object.entries(withoutCredentials(headers))) lines.push(`-H ${quote(`${name}: ${value}`)}`);
  if (body.trim()) lines.push(`--data-raw ${quote(body)}`);
  return lines.join(" \\\n  ");
}

/** A text of JSON as a literal of Python; JSON's own escapes are Python's as well. */
function pythonText(text: string): string {
  return JSON.stringify(text).replaceAll("\u2028", "\\u2028").replaceAll("\u2029", "\\u2029");
}

export function pythonLiteral(value: unknown, indent = ""): string {
  const deeper = `${indent}    `;
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return pythonText(value);
  if (Array.isArray(value)) return value.length === 0 ? "[]" : `[\n${value.map((item) => `${deeper}${pythonLiteral(item, deeper)},\n`).join("")}${indent}]`;
  const entries = Object.entries(value);
  return entries.length === 0 ? "{}" : `{\n${entries.map(([name, item]) => `${deeper}${pythonText(name)}: ${pythonLiteral(item, deeper)},\n`).join("")}${indent}}`;
}

/** Needs nothing but Python itself. */
export function python({ url, method, headers, body }: Outgoing): string {
  const isJson = body.trim() !== "" && jsonProblem(body) === null;
  const data = body.trim() === "" ? "None" : isJson ? "json.dumps(body).encode()" : `${pythonText(body)}.encode()`;
  const lines = [isJson ? "import json" : "", "from urllib.request import Request, urlopen", ""];
  if (isJson) lines.push(`body = ${pythonLiteral(JSON.parse(body))}`);
  lines.push(
    `headers = ${pythonLiteral(withoutCredentials(headers))}`,
    `request = Request(${pythonText(url)}, data=${data}, headers=headers, method=${pythonText(method)})`,
    "with urlopen(request) as answer:",
    "    for line in answer:",
    '        print(line.decode(), end="")',
    "",
  );
  return lines.filter((line, at) => at > 0 || line !== "").join("\n");
}
