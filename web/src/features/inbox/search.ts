import { text, type RawSearch } from "@/app/search";

export interface InboxSearch {
  /** The question that is being answered. */
  id?: string;
  /** The task that is shown beside it. */
  task?: string;
}

export function inboxSearch(search: RawSearch): InboxSearch {
  return { id: text(search, "id"), task: text(search, "task") };
}
