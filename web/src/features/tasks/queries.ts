import { infiniteQueryOptions, useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, type Query } from "@/api/client";
import { keys } from "@/api/keys";
import type { LogEvent, LogPage, TaskPage, TaskView, Timeline } from "@/api/types";
import { toast } from "@/ui";

const PAGE_SIZE = 100;

export function tasksQuery(filters: Query) {
  return infiniteQueryOptions({
    queryKey: keys.tasks(filters),
    queryFn: ({ pageParam, signal }) => api.get<TaskPage>("/api/tasks", { ...filters, page: pageParam, limit: PAGE_SIZE }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
}

export function useTasks(filters: Query) {
  return useInfiniteQuery(tasksQuery(filters));
}

export function useTask(id: string) {
  return useQuery({ queryKey: keys.task(id), queryFn: ({ signal }) => api.get<TaskView>(`/api/tasks/${encodeURIComponent(id)}`, {}, signal) });
}

export function useTaskTimeline(id: string) {
  return useQuery({ queryKey: keys.taskTimeline(id), queryFn: ({ signal }) => api.get<Timeline>(`/api/tasks/${encodeURIComponent(id)}/timeline`, {}, signal) });
}

const LOG_LIMIT = 200;
/** One reading goes this far; a longer log goes on at the next event or on demand. */
const LOG_ROUNDS = 10;

export interface Log {
  items: LogEvent[];
  first: number;
  last: number;
}

/** The log only ever grows: what is here stays, and only what came after it is asked for. */
export function useTaskEvents(id: string) {
  const client = useQueryClient();
  return useQuery({
    queryKey: keys.taskEvents(id),
    queryFn: async ({ signal }): Promise<Log> => {
      const known = client.getQueryData<Log>(keys.taskEvents(id));
      const log: Log = { items: [...(known?.items ?? [])], first: known?.first ?? 0, last: known?.last ?? 0 };
      for (let round = 0; round < LOG_ROUNDS; round += 1) {
        const after = log.items.at(-1)?.seq;
        const page = await api.get<LogPage>(`/api/tasks/${encodeURIComponent(id)}/events`, { after, limit: LOG_LIMIT }, signal);
        log.items.push(...page.items);
        log.first = page.first;
        log.last = page.last;
        if (page.items.length === 0 || (log.items.at(-1)?.seq ?? 0) >= page.last) break;
      }
      return log;
    },
  });
}

export interface Reply {
  text?: string;
  data?: unknown;
}

type Verb = "cancel" | "retry" | "reply" | "execute";

/** Something done to a task. The answer is the task as it now is; the lists hear of it through the feed. */
export function useTaskAction(id: string, verb: Verb) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (body: object = {}) => api.post<TaskView>(`/api/tasks/${encodeURIComponent(id)}/${verb}`, body),
    onSuccess: (view) => {
      client.setQueryData<TaskView>(keys.task(view.id), (known) => (known && known.seq > view.seq ? known : view));
      void client.invalidateQueries({ queryKey: keys.inbox });
    },
    onError: (error) => toast(error.message, "error"),
  });
}
