import { useEffect, useEffectEvent, useSyncExternalStore } from "react";

/** Something the palette (Ctrl-K) offers while a page is shown. */
export interface Action {
  id: string;
  label: string;
  group: string;
  keywords?: string;
  run: () => void;
}

let actions: readonly Action[] = [];
const listeners = new Set<() => void>();

function change(next: readonly Action[]): void {
  actions = next;
  for (const listener of listeners) listener();
}

/** Offers an action in the palette while the component is mounted. */
export function usePaletteAction(action: Omit<Action, "run">, run: () => void, enabled = true): void {
  const latest = useEffectEvent(run);
  const { id, label, group, keywords } = action;
  useEffect(() => {
    if (!enabled) return;
    const entry: Action = { id, label, group, keywords, run: () => latest() };
    change([...actions, entry]);
    return () => change(actions.filter((other) => other !== entry));
  }, [id, label, group, keywords, enabled]);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function usePaletteActions(): readonly Action[] {
  return useSyncExternalStore(subscribe, () => actions);
}
