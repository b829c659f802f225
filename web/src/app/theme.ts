import { useSyncExternalStore } from "react";

/** "system" follows the system; a choice is remembered. public/theme.js sets the theme before the first paint. */
export type ThemeChoice = "system" | "light" | "dark";
export type Theme = "light" | "dark";

const KEY = "accord.theme";
const system = () => window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();

function readChoice(): ThemeChoice {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : "system";
  } catch {
    // Storage may be blocked: then nothing is remembered.
    return "system";
  }
}

let choice = readChoice();

function current(): Theme {
  if (choice !== "system") return choice;
  return system().matches ? "dark" : "light";
}

function show(): void {
  document.documentElement.dataset.theme = current();
  for (const listener of listeners) listener();
}

export function chooseTheme(next: ThemeChoice): void {
  choice = next;
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // See readChoice.
  }
  show();
}

/** Call once, where the application starts. */
export function followSystemTheme(): void {
  system().addEventListener("change", show);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const useThemeChoice = (): ThemeChoice => useSyncExternalStore(subscribe, () => choice);
/** For what cannot be styled with the tokens, such as a graph library's `colorMode`. */
export const useTheme = (): Theme => useSyncExternalStore(subscribe, current);
