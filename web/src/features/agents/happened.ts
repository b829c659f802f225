/** What the inspector tells of an answer, read as it comes. */

export interface Head {
  status: number;
  headers: [string, string][];
  elapsedMs: number;
}

export interface Frame {
  n: number;
  at: string | null;
  gapMs: number;
  id: string | null;
  event: string | null;
  data: string;
}

export interface End {
  bytes: number;
  frames: number;
  elapsedMs: number;
  truncated: "size" | "frames" | "time" | null;
  problem: string | null;
}

export type Told = { kind: "head"; head: Head } | { kind: "frame"; frame: Frame } | { kind: "body"; text: string } | { kind: "end"; end: End };

/** An answer as far as it has come. */
export interface Happened {
  head: Head | null;
  frames: Frame[];
  body: string | null;
  end: End | null;
}

export const NOTHING: Happened = { head: null, frames: [], body: null, end: null };

/** Takes pieces of an event stream, cut anywhere, and gives the events that they complete. */
export class EventReader {
  #rest = "";

  feed(piece: string): Told[] {
    const blocks = (this.#rest + piece).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    return blocks.flatMap((block) => read(block) ?? []);
  }
}

function read(block: string): Told | null {
  const field = (name: string) =>
    block
      .split("\n")
      .filter((line) => line.startsWith(`${name}: `))
      .map((line) => line.slice(name.length + 2))
      .join("\n");
  const data = field("data");
  if (data === "") return null; // a comment that keeps the connection alive
  const body: unknown = JSON.parse(data);
  switch (field("event")) {
    case "head":
      return { kind: "head", head: body as Head };
    case "frame":
      return { kind: "frame", frame: body as Frame };
    case "body":
      return { kind: "body", text: (body as { text: string }).text };
    case "end":
      return { kind: "end", end: body as End };
    default:
      return null;
  }
}

export function after(known: Happened, told: Told): Happened {
  switch (told.kind) {
    case "head":
      return { ...known, head: told.head };
    case "frame":
      return { ...known, frames: [...known.frames, told.frame] };
    case "body":
      return { ...known, body: told.text };
    case "end":
      return { ...known, end: told.end };
  }
}

export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

type Thing = Record<string, unknown>;
const isThing = (value: unknown): value is Thing => typeof value === "object" && value !== null && !Array.isArray(value);

/** What a frame or an answer is, in a few words: which event, and the state that it tells. */
export function gist(data: string): string {
  const said = parsed(data);
  if (!isThing(said)) return data.slice(0, 120);
  if (isThing(said.error)) return `error: ${String(said.error.message ?? said.error.code ?? "")}`;
  const result = isThing(said.result) ? said.result : said;
  const [name, inner] = Object.entries(result).find(([, value]) => isThing(value) && Object.keys(result).length === 1) ?? [undefined, undefined];
  const thing = isThing(inner) ? inner : result;
  const kind = name ?? (typeof result.kind === "string" ? result.kind : typeof result.type === "string" ? result.type : undefined);
  const status = isThing(thing.status) ? thing.status.state : (thing.state ?? thing.status);
  const words = [kind, typeof status === "string" ? status : undefined, textIn(thing)];
  return words.filter(Boolean).join(" · ") || Object.keys(result).join(", ");
}

function textIn(thing: Thing): string | undefined {
  const artifact = isThing(thing.artifact) ? thing.artifact : isThing(thing.status) && isThing(thing.status.message) ? thing.status.message : thing;
  const parts = Array.isArray(artifact.parts) ? artifact.parts.filter(isThing) : [];
  const text = parts.map((part) => part.text ?? part.content ?? "").filter((piece) => typeof piece === "string").join("");
  return text ? JSON.stringify(text.slice(0, 80)) : undefined;
}

/** The task that an answer is about, in any dialect. */
export function taskIn(data: string): string | null {
  const said = parsed(data);
  if (!isThing(said)) return null;
  const result = isThing(said.result) ? said.result : said;
  const inner = [result.task, result.statusUpdate, result.artifactUpdate].find(isThing) ?? result;
  const isTask = isThing(inner.status) || "state" in inner || (result !== said && Object.keys(inner).join() === "id"); // AgentVault's answer is the id alone
  const id = inner.taskId ?? inner.task_id ?? (isTask ? inner.id : undefined);
  return typeof id === "string" && id !== "" ? id : null;
}
