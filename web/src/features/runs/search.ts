import { flag, oneOf, someOf, text, type RawSearch } from "@/app/search";
import { TASK_STATES, type TaskState } from "@/ui/state";

export const VIEWS = ["graph", "waterfall", "split"] as const;
export type RunLook = (typeof VIEWS)[number];

/** What the list is narrowed to, and what of a run is looked at: all of it is in the address. */
export interface RunsSearch {
  workflow?: string;
  state?: TaskState[];
  view?: RunLook;
  step?: string;
  /** The document beside it. */
  yaml?: true;
  /** What is shown beside it: the selected step, or the run itself. */
  tab?: "run";
}

export function runsSearch(search: RawSearch): RunsSearch {
  return {
    workflow: text(search, "workflow"),
    state: someOf(search, "state", TASK_STATES),
    view: oneOf(search, "view", VIEWS),
    step: text(search, "step"),
    yaml: flag(search, "yaml"),
    tab: oneOf(search, "tab", ["run"]),
  };
}
