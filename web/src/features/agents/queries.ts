import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { RATE_MS } from "@/api/agents";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import type { AgentView, HealthView, RunRow, TaskView, Template } from "@/api/types";
import { toast } from "@/ui";

const at = (slug: string) => `/api/agents/${encodeURIComponent(slug)}`;

export function useAgent(slug: string) {
  return useQuery({ queryKey: keys.agent(slug), queryFn: ({ signal }) => api.get<AgentView>(at(slug), {}, signal), refetchInterval: ({ state }) => ((state.data?.rate ?? 0) > 0 ? RATE_MS : false) });
}

/** Looks whether an agent elsewhere is there. */
export function useCheck(slug: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => api.post<HealthView>(`${at(slug)}/check`),
    onSuccess: (health) => {
      toast(health.state === "up" ? "It is there" : (health.detail ?? "It is not there"), health.state === "up" ? "plain" : "error");
      void client.invalidateQueries({ queryKey: keys.agent(slug) });
      void client.invalidateQueries({ queryKey: keys.agents });
    },
    onError: (error) => toast(error.message, "error"),
  });
}

export interface Templates {
  items: Template[];
  taskId: string;
}

/** Requests to begin with; they are made once, so that what somebody edits does not change below them. */
export function useTemplates(slug: string) {
  return useQuery({
    queryKey: ["templates", slug],
    queryFn: ({ signal }) => api.get<Templates>("/api/inspect/templates", { agent: slug }, signal),
    staleTime: Number.POSITIVE_INFINITY,
  });
}

export interface Trial {
  skill: string;
  agent: string;
  text?: string;
  data?: unknown;
}

export function useTry() {
  return useMutation({ mutationFn: (trial: Trial) => api.post<TaskView>("/api/tasks", trial) });
}

export interface Start {
  workflow: string;
  name: string;
  input?: string;
  inputs?: unknown;
}

export function useStart() {
  return useMutation({ mutationFn: (start: Start) => api.post<RunRow>("/api/runs", start) });
}
