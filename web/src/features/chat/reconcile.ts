import type { ChatMessage } from "./message";

/**
 * What to show of a chat at rest: what the server has stored, unless this page knows of messages that are not stored
 * yet, which is so for a moment after an answer has ended. A stored message that is shown already keeps its identity.
 */
export function reconcile(shown: readonly ChatMessage[], stored: readonly ChatMessage[]): ChatMessage[] {
  const known = new Set(stored.map((message) => message.id));
  const lost = shown.filter((message) => !known.has(message.id));
  if (lost.length > 0 && stored.length < shown.length) return [...shown];
  const before = new Map(shown.map((message) => [message.id, message]));
  return stored.map((message) => {
    const same = before.get(message.id);
    return same && JSON.stringify(same) === JSON.stringify(message) ? same : message;
  });
}

/** Whether an answer ended without its end: the server always says how one ended. */
export function isCutOff(message: ChatMessage | undefined): boolean {
  return message?.role === "assistant" && !message.metadata?.finishReason;
}

export const isLost = (error: Error | undefined): boolean => /fetch|network|load failed/i.test(error?.message ?? "");

/** What went wrong, in words: the server's own where it had some. Without an answer the message may never have arrived. */
export function problemOf(error: Error | undefined, hasAnswer: boolean): string {
  const text = error?.message ?? "";
  try {
    const body: unknown = JSON.parse(text);
    const detail = typeof body === "object" && body !== null ? (body as { detail?: unknown }).detail : undefined;
    if (typeof detail === "string") return detail;
  } catch {
    // It is not JSON: then it is the text itself.
  }
  if (isLost(error)) {
    return hasAnswer
      ? "The connection was lost. The rest of the answer appears here when the server is reachable again."
      : "The server is not reachable, so your message may not have arrived. Send it again when the page is live.";
  }
  return text || "Something went wrong.";
}

/** Chats by how long ago something was said in them, for the headings of the list. */
export function ageOf(updatedAt: string, now: Date): "Today" | "Yesterday" | "Last 7 days" | "Earlier" {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const at = new Date(updatedAt).getTime();
  const DAY = 24 * 60 * 60 * 1000;
  if (at >= midnight) return "Today";
  if (at >= midnight - DAY) return "Yesterday";
  return at >= midnight - 7 * DAY ? "Last 7 days" : "Earlier";
}
