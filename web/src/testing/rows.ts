import type { AgentRow, TaskPage, TaskRow, TaskView } from "@/api/types";

/** Rows as the server sends them, for tests. */
export function taskRow(change: Partial<TaskRow> = {}): TaskRow {
  return {
    id: "t1",
    contextId: "c1",
    agent: "Echo",
    slug: "echo",
    title: "say hello",
    status: "working",
    statusMessage: null,
    createdAt: "2026-01-01T10:00:00.000Z",
    updatedAt: "2026-01-01T10:00:01.000Z",
    owner: "",
    parentId: null,
    isRun: false,
    waiting: null,
    question: null,
    seq: 1,
    ...change,
  };
}

export function taskView(change: Partial<TaskView> = {}): TaskView {
  return { ...taskRow(), result: null, task: {}, actions: [], children: [], chatId: null, webhooks: 0, waitsToResume: false, failure: null, feed: 100, ...change };
}

export function taskPage(items: TaskRow[], change: Partial<TaskPage> = {}): TaskPage {
  return { items, next: null, total: items.length, feed: 100, ...change };
}

export function agentRow(slug: string, change: Partial<AgentRow> = {}): AgentRow {
  return {
    slug,
    name: slug,
    description: "",
    version: "1",
    kind: "function",
    isDefault: false,
    remote: null,
    health: { state: "up", detail: null, checkedAt: null },
    bindings: [],
    dialects: [],
    skills: [],
    rate: 0,
    open: 0,
    ...change,
  };
}
