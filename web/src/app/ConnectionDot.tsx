import { useConnection } from "@/live/live";
import type { Connection } from "@/live/protocol";
import { cx } from "@/ui";

const LOOKS: Record<Connection, { word: string; meaning: string; dot: string }> = {
  connecting: { word: "Connecting", meaning: "Connecting to the server", dot: "bg-grey animate-pulse-slow" },
  live: { word: "Live", meaning: "Everything here updates by itself", dot: "bg-green" },
  reconnecting: { word: "Reconnecting", meaning: "The server cannot be reached; what is shown may be old.", dot: "bg-amber animate-pulse-slow" },
  paused: { word: "Paused", meaning: "Updates wait until this tab is looked at", dot: "bg-grey" },
};

/** Only the dot, on a button, and only while something is not as it should be. */
export function ConnectionMark() {
  const connection = useConnection();
  if (connection === "live") return null;
  return <span aria-hidden className={cx("absolute top-1 right-1 size-2 rounded-full", LOOKS[connection].dot)} />;
}

/** Honest about what is live. */
export function ConnectionDot({ inWords = false }: { inWords?: boolean }) {
  const look = LOOKS[useConnection()];
  return (
    <div role="status" title={look.meaning} className="flex items-center gap-2 px-2 text-xs text-faint">
      <span aria-hidden className={cx("size-2 rounded-full", look.dot)} />
      <span className={inWords ? undefined : "max-rail:sr-only"}>{look.word}</span>
    </div>
  );
}
