import { useEffect, useEffectEvent, useSyncExternalStore } from "react";

export interface Shortcut {
  /** One key as `KeyboardEvent.key` names it, with "Ctrl+" if need be, or two pressed after another: "g t". */
  keys: string;
  label: string;
  group: string;
  /** Whether a key that is held runs it again and again: for moving only, never for what changes something. */
  repeats?: boolean;
}

interface Registered extends Shortcut {
  run: (event: KeyboardEvent) => void;
}

let registered: readonly Registered[] = [];
const listeners = new Set<() => void>();

function change(next: readonly Registered[]): void {
  registered = next;
  for (const listener of listeners) listener();
}

/** How long the second key of "g t" may take. */
const SEQUENCE_MS = 1200;
let prefix: { key: string; at: number } | null = null;

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Enter on a button or a link is its own: the page's must not take it away from those who have no mouse. */
function isPressed(event: KeyboardEvent): boolean {
  return event.key === "Enter" && event.target instanceof HTMLElement && event.target.closest("a, button, summary, [role=option]") !== null;
}

/** The innermost (last registered) shortcut of a name wins, so that a panel's Escape comes before its page's. */
function find(name: string): Registered | undefined {
  return registered.findLast((shortcut) => shortcut.keys === name);
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.altKey || isPressed(event) || document.querySelector("dialog[open]")) return;
  const modified = event.ctrlKey || event.metaKey;
  if (isTyping(event.target) && !modified && event.key !== "Escape") return;
  const name = modified ? `Ctrl+${event.key.toLowerCase()}` : event.key;
  const pending = prefix && event.timeStamp - prefix.at < SEQUENCE_MS ? prefix.key : null;
  prefix = null;
  const match = (pending && find(`${pending} ${name}`)) || find(name);
  if (match) {
    event.preventDefault();
    if (!event.repeat || match.repeats) match.run(event);
  } else if (!modified && registered.some((shortcut) => shortcut.keys.startsWith(`${name} `))) {
    prefix = { key: name, at: event.timeStamp };
  }
}

/** Call once, where the application starts. */
export function listenForShortcuts(): () => void {
  document.addEventListener("keydown", onKeyDown);
  return () => document.removeEventListener("keydown", onKeyDown);
}

/** Binds a key while the component is mounted and lists it in the help ("?"). */
export function useShortcut(shortcut: Shortcut, run: (event: KeyboardEvent) => void, enabled = true): void {
  const latest = useEffectEvent(run);
  const { keys, label, group, repeats } = shortcut;
  useEffect(() => {
    if (!enabled) return;
    const entry: Registered = { keys, label, group, repeats, run: (event) => latest(event) };
    change([...registered, entry]);
    return () => change(registered.filter((other) => other !== entry));
  }, [keys, label, group, repeats, enabled]);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useShortcuts(): readonly Shortcut[] {
  return useSyncExternalStore(subscribe, () => registered);
}
