import { useQuery } from "@tanstack/react-query";
import { api, MOUNT } from "./client";
import { keys } from "./keys";
import type { SessionView } from "./types";

/** Who looks, and what the server offers. */
export function useSession() {
  return useQuery({ queryKey: keys.session, queryFn: ({ signal }) => api.get<SessionView>("/api/session", {}, signal), staleTime: Number.POSITIVE_INFINITY });
}

/** Where this server is called by others, for commands and calls to be pasted elsewhere. */
export function useServerUrl(): string {
  return useSession().data?.url || window.location.origin + MOUNT;
}
