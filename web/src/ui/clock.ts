import { useSyncExternalStore } from "react";

/** One timer for every time shown on the page; it runs only while something looks at it. */
const TICK_MS = 1000;
/** The server's clock minus this one's: what is shown is the age of things by the clock that dated them. */
let skewMs = 0;
export function setClockSkew(ms: number): void {
  skewMs = ms;
}
export const serverNow = (): number => Date.now() + skewMs;

const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => listeners.forEach((notify) => notify()), TICK_MS);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}

/** The time of the last look: within one drawing everything is of the same moment, however fine the text is. */
const MOMENT_MS = 100;
let moment = 0;
function momentNow(): number {
  const current = serverNow();
  if (Math.abs(current - moment) >= MOMENT_MS) moment = current;
  return moment;
}

const never = () => () => undefined;

/** Derives a text from the clock; the component renders again only when the text changes. */
export function useTicking<T extends string | number>(read: (now: number) => T, running = true): T {
  return useSyncExternalStore(running ? subscribe : never, () => read(momentNow()));
}

/** Now in milliseconds, to the whole second so that one tick is one render. */
export function useNow(running = true): number {
  return useTicking((now) => Math.floor(now / TICK_MS) * TICK_MS, running);
}
