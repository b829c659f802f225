import type { Query } from "./client";

/**
 * The names under which answers are kept. Live events are written to them (live/apply.ts): a page that uses these keys
 * is live without doing anything. Lists of tasks, runs, deliveries and chats are infinite queries of pages.
 */
export const keys = {
  session: ["session"] as const,
  tasks: (filters: Query = {}) => ["tasks", filters] as const,
  task: (id: string) => ["task", id] as const,
  taskEvents: (id: string) => ["task", id, "events"] as const,
  taskTimeline: (id: string) => ["task", id, "timeline"] as const,
  inbox: ["inbox"] as const,
  runs: (filters: Query = {}) => ["runs", filters] as const,
  run: (id: string) => ["run", id] as const,
  runTimeline: (id: string) => ["run", id, "timeline"] as const,
  workflows: ["workflows"] as const,
  agents: ["agents"] as const,
  agent: (slug: string) => ["agent", slug] as const,
  models: ["models"] as const,
  deliveries: (filters: Query = {}) => ["deliveries", filters] as const,
  delivery: (id: string) => ["delivery", id] as const,
  chats: (filters: Query = {}) => ["chats", filters] as const,
  chat: (id: string) => ["chat", id] as const,
  audit: (filters: Query = {}) => ["audit", filters] as const,
  settings: ["settings"] as const,
  usage: ["usage"] as const,
};
