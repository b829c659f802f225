import { CircleX, X } from "lucide-react";
import { useSyncExternalStore } from "react";
import { IconButton } from "./Button";

type Kind = "plain" | "error";
interface Shown {
  id: number;
  text: string;
  kind: Kind;
}

let shown: readonly Shown[] = [];
let lastId = 0;
const listeners = new Set<() => void>();
const LASTS_MS: Record<Kind, number> = { plain: 2500, error: 8000 };

function change(next: readonly Shown[]): void {
  shown = next;
  for (const listener of listeners) listener();
}

function dismiss(id: number): void {
  change(shown.filter((entry) => entry.id !== id));
}

/** Says something in passing. What the reader must act on belongs into the page, not here. */
export function toast(text: string, kind: Kind = "plain"): void {
  lastId += 1;
  const entry = { id: lastId, text, kind };
  change([...shown.slice(-2), entry]);
  setTimeout(() => dismiss(entry.id), LASTS_MS[kind]);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function ToastHost() {
  const entries = useSyncExternalStore(subscribe, () => shown);
  return (
    <div role="status" aria-live="polite" className="pointer-events-none fixed right-4 bottom-4 z-50 flex flex-col items-end gap-2 max-phone:bottom-20">
      {entries.map((entry) => (
        <div key={entry.id} className="pointer-events-auto flex max-w-sm animate-enter items-center gap-2 rounded-md bg-raised py-1.5 pr-1.5 pl-3 text-sm shadow-float">
          {entry.kind === "error" && <CircleX className="size-4 shrink-0 text-red" aria-hidden />}
          <span className="min-w-0 break-words">{entry.text}</span>
          <IconButton label="Dismiss" size="small" onClick={() => dismiss(entry.id)}>
            <X />
          </IconButton>
        </div>
      ))}
    </div>
  );
}
