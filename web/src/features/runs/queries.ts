import { infiniteQueryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api, type Query } from "@/api/client";
import { keys } from "@/api/keys";
import type { RerunView, RunPage, RunRow, RunView, StepDetail, Timeline, WorkflowView } from "@/api/types";
import { toast } from "@/ui";

const path = (id: string, rest = "") => `/api/runs/${encodeURIComponent(id)}${rest}`;

export function runsQuery(filters: Query) {
  return infiniteQueryOptions({
    queryKey: keys.runs(filters),
    queryFn: ({ pageParam, signal }) => api.get<RunPage>("/api/runs", { ...filters, page: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
}

export function useRun(id: string) {
  return useQuery({ queryKey: keys.run(id), queryFn: ({ signal }) => api.get<RunView>(path(id), {}, signal) });
}

export function useRunTimeline(id: string) {
  return useQuery({ queryKey: keys.runTimeline(id), queryFn: ({ signal }) => api.get<Timeline>(path(id, "/timeline"), {}, signal) });
}

/** The key begins as that of the run does, so that what is told of the run also renews its steps. */
export function useStep(id: string, step: string) {
  return useQuery({
    queryKey: [...keys.run(id), "step", step],
    queryFn: ({ signal }) => api.get<StepDetail>(path(id, `/steps/${encodeURIComponent(step)}`), {}, signal),
  });
}

export function useWorkflows() {
  return useQuery({ queryKey: keys.workflows, queryFn: ({ signal }) => api.get<{ items: WorkflowView[] }>("/api/workflows", {}, signal) });
}

export interface Start {
  workflow: string;
  name?: string;
  input?: string;
  inputs?: Record<string, unknown>;
}

/** A run that has begun is looked at at once. */
function useOpening() {
  const navigate = useNavigate();
  const client = useQueryClient();
  return (run: RunRow) => {
    void client.invalidateQueries({ queryKey: ["runs"] });
    void navigate({ to: "/runs/$runId", params: { runId: run.id }, search: (before) => ({ view: before.view, yaml: before.yaml }) });
  };
}

export function useStartRun() {
  const open = useOpening();
  return useMutation({ mutationFn: (start: Start) => api.post<RunRow>("/api/runs", start), onSuccess: open });
}

/** How a run is run again: what it has not done, all from a step on, or everything. */
export type Again = { from?: string; fresh?: true };

/** Which steps run again, and which approvals are not asked for again. */
export function useRerunPreview(id: string, how: Again) {
  return useQuery({ queryKey: [...keys.run(id), "rerun", how], queryFn: ({ signal }) => api.get<RerunView>(path(id, "/rerun"), how, signal) });
}

export function useRerun(id: string) {
  const open = useOpening();
  return useMutation({
    mutationFn: (how: Again) => api.post<RunRow>(path(id, "/rerun"), how),
    onSuccess: open,
    onError: (error) => toast(error.message, "error"),
  });
}

export function useCancelRun(id: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: () => api.post(`/api/tasks/${encodeURIComponent(id)}/cancel`),
    onError: (error) => toast(error.message, "error"),
    onSettled: () => void client.invalidateQueries({ queryKey: keys.run(id) }),
  });
}

export function useDecision(id: string, step: string) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (said: { approved: boolean; comment: string }) => api.post(path(id, `/approvals/${encodeURIComponent(step)}`), said),
    onSuccess: (_, said) => toast(`${said.approved ? "Approved" : "Rejected"}: ${step}`),
    onError: (error) => toast(error.message, "error"),
    onSettled: () => {
      void client.invalidateQueries({ queryKey: keys.run(id) });
      void client.invalidateQueries({ queryKey: keys.inbox });
    },
  });
}
