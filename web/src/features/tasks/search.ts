import { flag, oneOf, someOf, text, type RawSearch } from "@/app/search";
import { TASK_STATES, type TaskState } from "@/ui/state";

export const SINCE = ["1h", "24h", "7d", "30d"] as const;
export type Since = (typeof SINCE)[number];

/** What the list is narrowed to, and how the selected task is shown: all of it is in the address. */
export interface TasksSearch {
  state?: TaskState[];
  agent?: string;
  since?: Since;
  q?: string;
  contextId?: string;
  /** Only tasks that no other task made. */
  top?: true;
  /** The selected task on the whole page instead of beside the list. */
  full?: true;
}

export function tasksSearch(search: RawSearch): TasksSearch {
  return {
    state: someOf(search, "state", TASK_STATES),
    agent: text(search, "agent"),
    since: oneOf(search, "since", SINCE),
    q: text(search, "q"),
    contextId: text(search, "contextId"),
    top: flag(search, "top"),
    full: flag(search, "full"),
  };
}
