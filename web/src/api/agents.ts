import { useQuery } from "@tanstack/react-query";
import { api } from "./client";
import { keys } from "./keys";
import type { AgentList } from "./types";

/**
 * The feed tells when an agent or one of its tasks changes, and both are asked for again then. That a rate falls because
 * nothing happens is no event: while one is shown that is not 0, it is asked for now and then.
 */
export const RATE_MS = 30_000;

/** The agents of this server, for pickers and for their own page. */
export function useAgents() {
  return useQuery({
    queryKey: keys.agents,
    queryFn: ({ signal }) => api.get<AgentList>("/api/agents", {}, signal),
    refetchInterval: ({ state }) => state.data?.items.some((agent) => agent.rate > 0) ? RATE_MS : false,
  });
}
