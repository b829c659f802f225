import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { chunk } from "./chunks";

beforeEach(() => {
  sessionStorage.clear();
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function answers(...statuses: number[]) {
  const fetched = vi.fn(() => {
    const status = statuses.shift();
    return status ? Promise.resolve(new Response(null, { status })) : Promise.reject(new TypeError("Failed to fetch"));
  });
  vi.stubGlobal("fetch", fetched);
  return fetched;
}

test("a part that can be had is not asked for twice", async () => {
  const fetched = answers();
  const load = vi.fn(() => Promise.resolve("part"));
  await expect(chunk(load)).resolves.toBe("part");
  expect(load).toHaveBeenCalledTimes(1);
  expect(fetched).not.toHaveBeenCalled();
});

test("while the server is away, or a proxy says so, the part is waited for and the page stays", async () => {
  const fetched = answers(0, 502, 0, 200);
  const reload = vi.fn();
  const load = vi.fn(() => (load.mock.calls.length === 1 ? Promise.reject(new TypeError("gone")) : Promise.resolve("part")));
  const found = chunk(load, reload);
  await vi.advanceTimersByTimeAsync(10_000);
  await expect(found).resolves.toBe("part");
  expect(fetched).toHaveBeenCalledTimes(4);
  expect(load).toHaveBeenCalledTimes(2);
  expect(reload).not.toHaveBeenCalled();
});

test("a page whose files are gone is loaded anew, once", async () => {
  answers(200, 200);
  const reload = vi.fn();
  const load = vi.fn(() => Promise.reject(new TypeError("gone")));
  void chunk(load, reload);
  await vi.advanceTimersByTimeAsync(0);
  expect(reload).toHaveBeenCalledTimes(1);
  await expect(chunk(load, reload)).rejects.toThrow("gone");
  expect(reload).toHaveBeenCalledTimes(1);
});
