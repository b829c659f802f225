import { useQuery } from "@tanstack/react-query";
import { createContext, use, useMemo } from "react";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import type { TaskRow, TaskView } from "@/api/types";
import { useTasks } from "@/features/tasks/queries";

/** The tasks that a conversation is about. */
type Rows = { rows: ReadonlyMap<string, TaskRow>; isKnown: boolean };
/** Outside of a conversation each task is asked for by itself. */
const TaskRows = createContext<Rows>({ rows: new Map(), isKnown: true });
export const TaskRowsProvider = TaskRows.Provider;

/** All tasks of a conversation in one list, which the feed keeps up to date. */
export function useTasksOfContext(contextId: string | undefined): Rows {
  const query = useTasks(contextId ? { contextId } : { contextId: "-" });
  const pages = query.data?.pages;
  return useMemo(() => {
    const items = contextId ? (pages ?? []).flatMap((page) => page.items) : [];
    return { rows: new Map(items.map((row) => [row.id, row])), isKnown: pages !== undefined };
  }, [pages, contextId]);
}

/** The newest that is known of a task; one of another conversation is asked for by itself. */
export function useTaskRow(id: string): TaskRow | undefined {
  const { rows, isKnown } = use(TaskRows);
  const row = rows.get(id);
  const alone = useTaskView(id, isKnown && !row);
  return row ?? alone.data;
}

/** All of a task, where a row is not enough: what it asks, and in which form. */
export function useTaskView(id: string, enabled: boolean) {
  return useQuery({ queryKey: keys.task(id), queryFn: ({ signal }) => api.get<TaskView>(`/api/tasks/${encodeURIComponent(id)}`, {}, signal), enabled });
}
