import { beforeEach, expect, test, vi } from "vitest";
import { reloadWhenOutdated } from "./outdated";

beforeEach(() => sessionStorage.clear());

test("a page whose files are gone is loaded anew, once", () => {
  const reload = vi.fn();
  reloadWhenOutdated(sessionStorage, reload);
  const first = new Event("vite:preloadError", { cancelable: true });
  window.dispatchEvent(first);
  expect(reload).toHaveBeenCalledTimes(1);
  expect(first.defaultPrevented).toBe(true);
  const second = new Event("vite:preloadError", { cancelable: true });
  window.dispatchEvent(second);
  expect(reload).toHaveBeenCalledTimes(1);
  expect(second.defaultPrevented).toBe(false);
});
