import { useConnection } from "@/live/live";
import type { Connection } from "@/live/protocol";
import { cx } from "@/ui";

const LOOKS: Record<Connection, { word: string; meaning: string; dot: string }> = {
  connecting: { word: "Connecting", meaning: "Connecting to the server", dot: "bg-grey animate-pulse-slow" },
  live: { word: "Live", meaning: "Everything here updates by itself", dot: "bg-green" },
  reconnecting: { word: "Reconnecting", meaning: "The server cannot be reached; what is shown may be old. Tasks keep running.", dot: "bg-amber animate-pulse-slow" },
  paused: { word: "Paused", meaning: "Updates wait until this tab is looked at", dot: "bg-grey" },
};

/** Honest about what is live. */
export function ConnectionDot() {
  const look = LOOKS[useConnection()];
  return (
    <div role="status" title={look.meaning} className="flex items-center gap-2 px-2 text-xs text-faint">
      <span aria-hidden className={cx("size-2 rounded-full", look.dot)} />
      <span className="max-rail:sr-only">{look.word}</span>
    </div>
  );
}
