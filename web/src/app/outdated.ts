/**
 * A tab that was open while the server was replaced by another version asks for files that are gone. The page is loaded
 * anew then, once: if that does not help, something else is wrong, and the page says so.
 */
const TRIED = "accord-reloaded-at";
const AGAIN_MS = 60_000;

export function reloadWhenOutdated(storage: Storage = sessionStorage, reload: () => void = () => location.reload()): void {
  window.addEventListener("vite:preloadError", (event) => {
    const last = Number(storage.getItem(TRIED) ?? 0);
    if (Date.now() - last < AGAIN_MS) return;
    storage.setItem(TRIED, String(Date.now()));
    event.preventDefault();
    reload();
  });
}
