import { expect, test } from "vitest";
import { axisOf, placeSpan } from "./waterfallLayout";

test("the axis goes from the first start to the last end, with few round ticks", () => {
  const axis = axisOf([{ start: 1000, end: 4000 }, { start: 2000, end: 11_000 }], 0);
  expect([axis.start, axis.end]).toEqual([1000, 11_000]);
  expect(axis.ticks.map((tick) => tick.label)).toEqual(["0", "2 s", "4 s", "6 s", "8 s", "10 s"]);
  expect(axis.ticks.at(-1)?.percent).toBe(100);
});

test("what goes on reaches to now, and the axis with it", () => {
  const spans = [{ start: 0, end: 500 }, { start: 500 }];
  const axis = axisOf(spans, 2000);
  expect(axis.end).toBe(2000);
  expect(placeSpan(spans[1] ?? { start: 0 }, axis, 2000)).toEqual({ left: 25, width: 75 });
});

test("something without length, or nothing at all, still has an axis", () => {
  const point = axisOf([{ start: 5, end: 5 }], 5);
  expect(point.end).toBeGreaterThan(point.start);
  expect(placeSpan({ start: 5, end: 5 }, point, 5)).toEqual({ left: 0, width: 0 });
  expect(axisOf([], 7).ticks).toEqual([]);
});

test("a clock that is behind does not draw outside the axis", () => {
  const axis = axisOf([{ start: 100, end: 200 }], 0);
  const place = placeSpan({ start: 50, end: 500 }, axis, 0);
  expect(place).toEqual({ left: 0, width: 100 });
  // Begun later than "now": as long as nothing, not negative.
  expect(placeSpan({ start: 150 }, axis, 120).width).toBe(0);
});

const labels = (length: number) => axisOf([{ start: 0, end: length }], 0).ticks.map((tick) => tick.label);

test("long and short spans have fitting ticks", () => {
  expect(labels(45)).toEqual(["0", "10 ms", "20 ms", "30 ms", "40 ms"]);
  expect(labels(150_000)).toEqual(["0", "30 s", "1 m", "1 m 30 s", "2 m", "2 m 30 s"]);
  expect(labels(3 * 86_400_000)).toEqual(["0", "1 d", "2 d", "3 d"]);
});
