import { useQuery } from "@tanstack/react-query";
import { api } from "./client";
import { keys } from "./keys";
import type { AgentList } from "./types";

/** The agents of this server, for pickers and for their own page, which asks again now and then how busy they are. */
export function useAgents(refetchInterval?: number) {
  return useQuery({ refetchInterval, queryKey: keys.agents, queryFn: ({ signal }) => api.get<AgentList>("/api/agents", {}, signal) });
}
