import type { TaskRow } from "@/api/types";
import { isEnded, isWaiting, type JsonSchema } from "@/ui";
import { blocksOf } from "./blocks";
import type { ChatMessage, TaskData } from "./message";

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
  /** What it asks, from the same view of it as `waits`; null if nothing waits. */
  question: Asked | null;
  isRun: boolean;
}

/** Of what a message said and what the feed says, the newer; a message says it once, the feed for ever. */
export function chipOf(data: TaskData, row: TaskRow | undefined): Chip {
  const isOlder = row !== undefined && (data.seq ?? -1) > row.seq;
  const task = isOlder ? { ...row, ...data } : { ...data, ...row };
  const status = task.status ?? "submitted";
  const isOfRow = row !== undefined && !isOlder;
  // An older row knows nothing of a question that the message has already.
  const waits = waitsFor(status, isOfRow ? row.waiting : data.waiting, data.approval);
  return {
    id: data.taskId,
    title: task.title || "Task",
    agent: task.agent ?? null,
    slug: task.slug ?? null,
    status,
    line: task.statusMessage || null,
    createdAt: task.createdAt ?? null,
    endedAt: isEnded(status) ? (task.updatedAt ?? null) : null,
    waits,
    question: waits === null || waits === "execute" ? null : isOfRow ? askedIn(row.question) : askedIn({ text: data.question ?? data.statusMessage ?? "", schema: data.schema }),
    isRun: task.isRun ?? false,
  };
}

function waitsFor(status: string, waiting: TaskRow["waiting"] | undefined, approval: boolean | undefined): Chip["waits"] {
  if (status === "submitted") return waiting === "execute" ? "execute" : null;
  if (!isWaiting(status)) return null;
  if (status === "auth-required") return "auth";
  return waiting === "approval" || (waiting === undefined && approval) ? "approve" : "reply";
}

/** What a task asks, and the form of the answer. */
export interface Asked {
  /** The message that asks, as far as it is known. */
  id?: string;
  text: string;
  schema: JsonSchema | null;
}

const askedIn = (question: { id?: string | null; text: string; schema?: unknown } | null): Asked => ({ ...(question?.id && { id: question.id }), text: question?.text ?? "", schema: (question?.schema ?? null) as JsonSchema | null });

/** What was asked in a message whose task has gone on since. */
export function askedThen(data: TaskData): string | null {
  return data.status && isWaiting(data.status) ? (data.question ?? data.statusMessage ?? null) : null;
}

/** The task that gives an answer, as far as it is known. */
export function taskOfAnswer(last: ChatMessage | undefined, rows: ReadonlyMap<string, TaskRow>): Chip | null {
  const taskId = last?.role === "assistant" ? last.metadata?.taskId : undefined;
  if (!last || !taskId) return null;
  const block = blocksOf(last).find((one) => one.kind === "task" && one.taskId === taskId);
  return chipOf(block?.kind === "task" ? block.data : { taskId }, rows.get(taskId));
}

/** The tasks of an answer that have not ended: its own, and those that it planned or began. */
export function openTasksOf(last: ChatMessage | undefined, rows: ReadonlyMap<string, TaskRow>): Chip[] {
  const own = taskOfAnswer(last, rows);
  const others = last && own ? blocksOf(last).flatMap((block) => (block.kind === "task" && block.taskId !== own.id ? [chipOf(block.data, rows.get(block.taskId))] : [])) : [];
  return [...(own ? [own] : []), ...others].filter((chip) => !isEnded(chip.status));
}
