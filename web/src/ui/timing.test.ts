import { expect, test } from "vitest";
import { formatClock, formatDuration, formatExact, formatRelative } from "./timing";

test.each([
  [0, "0 ms"],
  [450.4, "450 ms"],
  [1290, "1.2 s"],
  [12_900, "12 s"],
  [60_000, "1 m"],
  [185_000, "3 m 5 s"],
  [7_800_000, "2 h 10 m"],
  [356_400_000, "4 d 3 h"],
  [-5, "0 s"],
])("%d ms is %s", (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});

test("relative times", () => {
  const now = Date.parse("2026-01-10T12:00:00Z");
  const at = (seconds: number) => formatRelative(now - seconds * 1000, now);
  expect([at(2), at(12), at(200), at(7200), at(3 * 86_400), at(-90)]).toEqual(["now", "12 s", "3 m", "2 h", "3 d", "in 1 m"]);
  expect(formatRelative(now - 60_000, now, true)).toBe("1 m ago");
});

test("the clock says the date only of another day", () => {
  const noon = new Date(2026, 0, 10, 12, 0, 7).getTime();
  const yesterday = new Date(2026, 0, 9, 12, 0, 7).getTime();
  expect(formatClock(noon, noon + 60_000)).toBe("12:00:07");
  expect(formatClock(yesterday, noon)).toBe(formatExact(yesterday));
  expect(formatExact(yesterday)).toContain("2026");
});
