/** The parts of A2A 1.0's JSON that the canvas shows. An agent may send anything, so everything is read with care. */

export interface Part {
  text?: string;
  data?: unknown;
  /** Where the bytes are: our own download route, or the address that an agent gave. */
  url?: string;
  filename?: string;
  mediaType?: string;
}

export interface Artifact {
  id: string;
  name: string;
  description: string;
  parts: Part[];
}

export interface Message {
  id: string;
  fromUser: boolean;
  parts: Part[];
}

type Json = Record<string, unknown>;
const isJson = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);
const listOf = (value: unknown): Json[] => (Array.isArray(value) ? value.filter(isJson) : []);
const textOf = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

/** A mark that turns the direction of writing can make a program's name read like a picture's: it is shown instead. */
export const readFilename = (value: unknown): string | undefined => textOf(value)?.replace(/[\u200E\u200F\u202A-\u202E\u2066-\u2069]/g, "\uFFFD") || undefined;

export function readPart(part: Json): Part {
  return {
    text: textOf(part.text),
    data: part.data,
    url: textOf(part.url),
    filename: readFilename(part.filename),
    mediaType: textOf(part.mediaType)?.toLowerCase() || undefined,
  };
}

/** A streamed text arrives as one part per piece: pieces of one type that follow each other are one text. */
export function readParts(value: unknown): Part[] {
  const joined: Part[] = [];
  for (const part of listOf(value).map(readPart)) {
    const before = joined.at(-1);
    if (before?.text !== undefined && part.text !== undefined && before.mediaType === part.mediaType && before.filename === part.filename) {
      joined[joined.length - 1] = { ...before, text: before.text + part.text };
    } else {
      joined.push(part);
    }
  }
  return joined;
}

export function readMessage(message: unknown): Message | null {
  if (!isJson(message)) return null;
  return { id: textOf(message.messageId) ?? "", fromUser: message.role === "ROLE_USER", parts: readParts(message.parts) };
}

export function artifactsOf(task: Json): Artifact[] {
  return listOf(task.artifacts).map(readArtifact);
}

export function readArtifact(artifact: Json): Artifact {
  return {
    id: textOf(artifact.artifactId) ?? "",
    name: textOf(artifact.name) ?? "",
    description: textOf(artifact.description) ?? "",
    parts: readParts(artifact.parts),
  };
}

/** What was said, in its order; what the agent says right now is the last of it unless it is there already. */
export function messagesOf(task: Json): Message[] {
  const history = listOf(task.history).flatMap((entry) => readMessage(entry) ?? []);
  const current = statusMessage(task);
  return current && !history.some((message) => message.id === current.id) ? [...history, current] : history;
}

export function statusMessage(task: Json): Message | null {
  return isJson(task.status) ? readMessage(task.status.message) : null;
}

/** All text of some parts; used where one line or a quotation is needed. */
export function plainText(parts: readonly Part[]): string {
  return parts.flatMap((part) => part.text ?? []).join("\n");
}
