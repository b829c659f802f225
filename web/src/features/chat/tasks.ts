import type { TaskRow } from "@/api/types";
import { isEnded, isWaiting, type JsonSchema } from "@/ui";
import type { TaskData } from "./message";

/** A task as its chip shows it. */
export interface Chip {
  id: string;
  title: string;
  agent: string | null;
  slug: string | null;
  status: string;
  line: string | null;
  createdAt: string | null;
  /** When it ended; nothing while it goes on. */
  endedAt: string | null;
  /** What it waits for, of a person. */
  waits: "reply" | "approve" | "auth" | "execute" | null;
  isRun: boolean;
}

/** Of what a message said and what the feed says, the newer; a message says it once, the feed for ever. */
export function chipOf(data: TaskData, row: TaskRow | undefined): Chip {
  const isOlder = row !== undefined && (data.seq ?? -1) > row.seq;
  const task = isOlder ? { ...row, ...data } : { ...data, ...row };
  const status = task.status ?? "submitted";
  return {
    id: data.taskId,
    title: task.title || "Task",
    agent: task.agent ?? null,
    slug: task.slug ?? null,
    status,
    line: task.statusMessage || null,
    createdAt: task.createdAt ?? null,
    endedAt: isEnded(status) ? (task.updatedAt ?? null) : null,
    waits: waitsFor(status, task.waiting, data.approval),
    isRun: task.isRun ?? false,
  };
}

function waitsFor(status: string, waiting: TaskRow["waiting"] | undefined, approval: boolean | undefined): Chip["waits"] {
  if (status === "submitted") return waiting === "execute" ? "execute" : null;
  if (!isWaiting(status)) return null;
  if (status === "auth-required") return "auth";
  return waiting === "approval" || (waiting === undefined && approval) ? "approve" : "reply";
}

/** What a task asks, as the canvas's view of it has it: A2A's status message and what its metadata adds. */
export interface Asked {
  text: string;
  schema: JsonSchema | null;
  isApproval: boolean;
}

export function askedBy(view: { task: object } | undefined, data: TaskData): Asked {
  const status = record(record(view?.task).status);
  const message = record(status.message);
  const metadata = record(message.metadata);
  const parts = Array.isArray(message.parts) ? message.parts.map(record) : [];
  const text = parts.flatMap((part) => (typeof part.text === "string" ? [part.text] : [])).join("");
  const schema = isObject(metadata.schema) ? metadata.schema : (parts.map((part) => record(part.metadata).schema).find(isObject) ?? data.schema ?? null);
  return {
    text: text || data.question || data.statusMessage || "",
    schema: schema as JsonSchema | null,
    isApproval: metadata.approval === true || data.approval === true,
  };
}

/** What was asked in a message whose task has gone on since. */
export function askedThen(data: TaskData): string | null {
  return data.status && isWaiting(data.status) ? (data.question ?? data.statusMessage ?? null) : null;
}

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
const record = (value: unknown): Record<string, unknown> => (isObject(value) ? value : {});
