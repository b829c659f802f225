import type { TaskRow } from "@/api/types";

/** What a task is called: what was asked for, else, of a run that was begun with inputs alone, its workflow. */
export function titleOf(task: Pick<TaskRow, "title" | "isRun" | "agent">): string | null {
  return task.title || (task.isRun ? task.agent : null);
}
