import { useConnection } from "@/live/live";

export const WAITS_TO_RESUME = "Waiting to resume";

/** Whether a task at work is known to make no progress: its node is gone, or this page does not reach the server. */
export function useWaitsToResume(status: string, isLeft = false): boolean {
  const isCut = useConnection() === "reconnecting";
  return status === "working" && (isLeft || isCut);
}
