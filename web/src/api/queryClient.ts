import { QueryClient } from "@tanstack/react-query";
import { ApiError } from "./client";

/** A refusal stays one; only what may pass (no answer, an overloaded server) is asked again. */
function shouldRetry(failures: number, error: Error): boolean {
  const mayPass = !(error instanceof ApiError) || error.status === 0 || error.status >= 500;
  return mayPass && failures < 2;
}

export function newQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      // The feed keeps what is shown current; a page that comes back shows what it had and asks once more.
      queries: { staleTime: 5_000, gcTime: 10 * 60_000, refetchOnWindowFocus: false, refetchOnReconnect: false, retry: shouldRetry },
    },
  });
}
