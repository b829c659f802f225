import { useQuery } from "@tanstack/react-query";
import { api } from "./client";
import { keys } from "./keys";
import type { SessionView } from "./types";

/** Who looks, and what the server offers. */
export function useSession() {
  return useQuery({ queryKey: keys.session, queryFn: ({ signal }) => api.get<SessionView>("/api/session", {}, signal), staleTime: Number.POSITIVE_INFINITY });
}
