import { pageUrl } from "./client";

const TRIED = "accord-reloaded-at";
const AGAIN_MS = 60_000;
const PAUSES_MS = [250, 500, 1000, 2000];

/** Resolves when the server answers: one that starts again is away for a moment, a proxy before it says 502 meanwhile. */
async function answering(): Promise<void> {
  for (let tries = 0; ; tries++) {
    const status = await fetch(pageUrl("/"), { method: "HEAD", cache: "no-store" }).then(
      (response) => response.status,
      () => 0,
    );
    if (status !== 0 && status < 500) return;
    await new Promise((resolve) => setTimeout(resolve, PAUSES_MS[Math.min(tries, PAUSES_MS.length - 1)]));
  }
}

/**
 * A part of the console that is fetched when it is first needed. While the server is away it is waited for: what is on
 * the screen stays there. A tab that was open while the server was replaced by another version asks for files that are
 * gone; the page is loaded anew then, once. If that does not help, something else is wrong, and the page says so.
 */
export async function chunk<Module>(load: () => Promise<Module>, reload: () => void = () => location.reload()): Promise<Module> {
  try {
    return await load();
  } catch {
    await answering();
  }
  try {
    return await load();
  } catch (problem) {
    if (Date.now() - Number(sessionStorage.getItem(TRIED) ?? 0) < AGAIN_MS) throw problem;
    sessionStorage.setItem(TRIED, String(Date.now()));
    reload();
    return new Promise<Module>(() => undefined);
  }
}
