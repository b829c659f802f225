import { readFilename } from "@/features/tasks/a2a";
import { type ArtifactData, type ChatMessage, type TaskData } from "./message";

/** A message as it is shown. Pure: parts in, blocks out; what is not understood is left out rather than shown raw. */
export type Block =
  | { kind: "text"; key: string; text: string }
  | { kind: "reasoning"; key: string; text: string; isOpen: boolean }
  | { kind: "file"; key: string; url: string; mediaType: string; name: string }
  | { kind: "task"; key: string; taskId: string; data: TaskData }
  | { kind: "artifact"; key: string; artifact: ArtifactData }
  | { kind: "tool"; key: string; state: ToolState; label: string; lines: string[]; error?: string }
  | { kind: "reply"; key: string; fields: [string, string][] }
  | { kind: "link"; key: string; url: string; title: string };

/** What an artifact that is a task is called; in chats that are older than tasks it is a canvas. */
const TASK_TYPES = new Set(["task", "canvas"]);

export type ToolState = "running" | "done" | "failed";

type Loose = Record<string, unknown>;
const loose = (value: unknown): Loose => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Loose) : {});
const textOf = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

export function blocksOf(message: Pick<ChatMessage, "parts" | "metadata">): Block[] {
  const blocks: Block[] = [];
  const add = (block: Block | null) => {
    if (!block) return;
    const last = blocks.at(-1);
    if (block.kind === "text" && last?.kind === "text") blocks[blocks.length - 1] = { ...last, text: `${last.text}\n\n${block.text}` };
    else if (block.kind === "task" && blocks.some((other) => other.kind === "task" && other.taskId === block.taskId)) mergeTask(blocks, block);
    else blocks.push(block);
  };
  message.parts.forEach((part, index) => add(blockOf(part as Loose, String(index))));
  const { artifactType, taskId } = message.metadata ?? {};
  // The second of the two ways in which a message introduces a task; the first is a part of the tool createTask.
  if (artifactType && TASK_TYPES.has(artifactType) && taskId) add({ kind: "task", key: `task-${taskId}`, taskId, data: { taskId } });
  // A file of an artifact is told twice, for front ends that know only one of the two.
  const inArtifacts = new Set(blocks.flatMap((block) => (block.kind === "artifact" ? block.artifact.parts.map((part) => part.url) : [])));
  const isPlanShown = blocks.some((block) => block.kind === "task" && block.data.title !== undefined);
  return blocks
    .filter((block) => block.kind !== "file" || !inArtifacts.has(block.url))
    .map((block) => (block.kind === "tool" && isPlanShown ? { ...block, lines: [] } : block));
}

function mergeTask(blocks: Block[], block: Block & { kind: "task" }): void {
  const at = blocks.findIndex((other) => other.kind === "task" && other.taskId === block.taskId);
  const known = blocks[at];
  if (known?.kind === "task") blocks[at] = { ...known, data: { ...known.data, ...block.data } };
}

function blockOf(part: Loose, index: string): Block | null {
  const type = String(part.type);
  if (type.startsWith("tool-")) return toolBlock(type.slice("tool-".length), part, index);
  switch (type) {
    case "text":
      return textOf(part.text) ? { kind: "text", key: index, text: String(part.text) } : null;
    case "reasoning":
      return textOf(part.text) ? { kind: "reasoning", key: index, text: String(part.text), isOpen: part.state === "streaming" } : null;
    case "file":
      return textOf(part.url) ? fileBlock(part, index) : null;
    case "source-url":
      return isWebAddress(part.url) ? { kind: "link", key: index, url: String(part.url), title: textOf(part.title) ?? String(part.url) } : null;
    case "dynamic-tool":
      return toolBlock(String(part.toolName), part, index);
    case "data-task":
      return taskBlock(loose(part.data), textOf(part.id));
    case "data-artifact":
      return artifactBlock(loose(part.data), index);
    case "data-reply":
      return { kind: "reply", key: index, fields: Object.entries(loose(part.data)).map(([name, value]) => [name, shown(value)]) };
  }
  return null;
}

const isWebAddress = (url: unknown): boolean => typeof url === "string" && /^https?:\/\//i.test(url);
const shown = (value: unknown): string => (typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "string" ? value : JSON.stringify(value));

function fileBlock(part: Loose, key: string): Block {
  const mediaType = textOf(part.mediaType) ?? "application/octet-stream";
  return { kind: "file", key, url: String(part.url), mediaType, name: readFilename(part.filename) ?? mediaType };
}

function taskBlock(data: Loose, id: string | undefined): Block | null {
  const taskId = textOf(data.taskId) ?? textOf(data.id) ?? id;
  return taskId ? { kind: "task", key: `task-${taskId}`, taskId, data: { ...(data as Partial<TaskData>), taskId } } : null;
}

function artifactBlock(data: Loose, index: string): Block | null {
  const artifactId = textOf(data.artifactId) ?? index;
  if (!Array.isArray(data.parts)) return null;
  return { kind: "artifact", key: `artifact-${artifactId}`, artifact: { ...(data as unknown as ArtifactData), artifactId } };
}

// --- tools ------------------------------------------------------------------------------------------------------------

function stateOf(part: Loose): ToolState {
  if (part.state === "output-available") return "done";
  return part.state === "output-error" || part.state === "output-denied" ? "failed" : "running";
}

function toolBlock(name: string, part: Loose, key: string): Block {
  const input = loose(part.input);
  const output = loose(part.output);
  const state = stateOf(part);
  const taskId = textOf(output.taskId);
  if (name === "createTask" && taskId) {
    const data: TaskData = { taskId };
    for (const member of ["title", "agent", "status"] as const) {
      const value = textOf(output[member]) ?? textOf(input[member]);
      if (value) Object.assign(data, { [member]: value });
    }
    return { kind: "task", key: `task-${taskId}`, taskId, data };
  }
  const { label, lines } = described(name, state, input, output);
  return { kind: "tool", key, state, label, lines, error: textOf(part.errorText) };
}

function described(name: string, state: ToolState, input: Loose, output: Loose): { label: string; lines: string[] } {
  const title = textOf(input.title) ?? textOf(output.title) ?? textOf(input.taskId) ?? "a task";
  if (name === "planTasks") {
    const tasks = Array.isArray(output.tasks) ? output.tasks.map(loose) : [];
    const lines = tasks.map((task) => [textOf(task.title) ?? "Task", textOf(task.agent)].filter(Boolean).join(" · "));
    if (state === "running") return { label: "Planning", lines: [] };
    return { label: `Planned ${tasks.length} ${tasks.length === 1 ? "task" : "tasks"}`, lines };
  }
  if (name === "createTask") return { label: state === "failed" ? `${title} could not be created` : `Creating ${title}`, lines: [] };
  if (name === "updateTask") {
    const status = textOf(output.status) ?? textOf(input.status);
    return { label: status ? `${title} is ${status}` : `Updating ${title}`, lines: [] };
  }
  return { label: readable(name), lines: [] };
}

/** "fetch_orders" and "fetchOrders" are both "Fetch orders". */
function readable(name: string): string {
  const words = name
    .replaceAll(/[_-]+/g, " ")
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** All that a message says, for copying. */
export function plainText(message: Pick<ChatMessage, "parts" | "metadata">): string {
  return blocksOf(message)
    .flatMap((block) => (block.kind === "text" ? [block.text] : []))
    .join("\n\n");
}
