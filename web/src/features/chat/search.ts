import { text, type RawSearch } from "@/app/search";

export interface ChatSearch {
  /** What the list of chats is narrowed to. */
  q?: string;
  /** The task whose canvas is open beside the conversation. */
  task?: string;
  /** The agent that a new chat begins with. */
  agent?: string;
}

export function chatSearch(search: RawSearch): ChatSearch {
  return { q: text(search, "q"), task: text(search, "task"), agent: text(search, "agent") };
}
