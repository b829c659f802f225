import type { ChatRow, TaskRow } from "@/api/types";

export const WORKER_NAME = "accord-live";

/** What the feed tells (GET /api/events), by the name of the event. */
export interface FeedBodies {
  task: TaskRow;
  log: { taskId: string; seq: number };
  delivery: { taskId: string };
  chat: ChatRow;
  agent: { slug: string; health: string };
  reset: Record<string, never>;
}
export type FeedKind = keyof FeedBodies;
export const FEED_KINDS: readonly FeedKind[] = ["task", "log", "delivery", "chat", "agent", "reset"];

export type FeedEvent = { [Kind in FeedKind]: { kind: Kind; id: number; body: FeedBodies[Kind] } }[FeedKind];

export type Connection = "connecting" | "live" | "reconnecting" | "paused";

/** From a tab to whoever holds the connection. */
export type ToFeed = { type: "topics"; topics: readonly string[] } | { type: "retry" } | { type: "bye" };

/** And back. `covers` is the number after which every event is told: what was read before it may have missed something. */
export type FromFeed =
  | { type: "connection"; connection: Connection }
  | { type: "covers"; after: number }
  | { type: "clock"; now: string }
  | { type: "events"; events: readonly FeedEvent[] };
