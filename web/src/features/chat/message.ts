import type { UIMessage } from "ai";
import type { TaskRow } from "@/api/types";
import type { JsonSchema } from "@/ui";

/** What the server says about an answer: whose it is, of which task, and how it ended. */
export interface ChatMetadata {
  contextId?: string;
  taskId?: string;
  agent?: string;
  /** Whether the agent answers while one waits, or has taken on a task that goes on by itself. */
  mode?: "stream" | "task";
  artifactType?: string;
  /** Absent while an answer is coming, and for ever if it was cut off. */
  finishReason?: string;
}

/** A task as a message tells of it; what the feed tells later is newer (tasks.ts). */
export interface TaskData extends Partial<Omit<TaskRow, "id" | "question">> {
  taskId: string;
  artifactType?: string;
  question?: string;
  schema?: JsonSchema | null;
  approval?: boolean;
}

/** A part as A2A 1.0 writes it, with an address in the place of bytes. */
export interface ContentPart {
  text?: string;
  data?: unknown;
  url?: string;
  raw?: string;
  filename?: string;
  mediaType?: string;
}

export interface ArtifactData {
  artifactId: string;
  taskId?: string;
  name?: string | null;
  description?: string | null;
  parts: ContentPart[];
}

export type ChatDataParts = { task: TaskData; artifact: ArtifactData; reply: Record<string, unknown> };
export type ChatMessage = UIMessage<ChatMetadata, ChatDataParts>;
