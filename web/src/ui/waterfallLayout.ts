/** The arithmetic of a waterfall, apart from how it is drawn. Times are milliseconds since 1970. */

export interface Span {
  start: number;
  /** Absent while it goes on. */
  end?: number | null;
}

export interface Axis {
  start: number;
  end: number;
  ticks: { at: number; percent: number; label: string }[];
}

const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1.5e4, 3e4, 6e4, 1.2e5, 3e5, 6e5, 9e5, 1.8e6, 3.6e6, 7.2e6, 1.08e7, 2.16e7, 4.32e7, 8.64e7];
const WANTED_TICKS = 5;
/** Something that took no time at all still gets an axis. */
const SHORTEST_MS = 10;

function step(length: number): number {
  const most = STEPS_MS.find((size) => length / size <= WANTED_TICKS);
  return most ?? Math.ceil(length / WANTED_TICKS / 8.64e7) * 8.64e7;
}

function tickLabel(offset: number, size: number): string {
  if (offset === 0) return "0";
  if (size < 1e3) return offset < 1e3 ? `${offset} ms` : `${Number((offset / 1e3).toFixed(2))} s`;
  if (size < 6e4) return offset < 6e4 ? `${offset / 1e3} s` : `${Math.floor(offset / 6e4)} m${offset % 6e4 ? ` ${(offset % 6e4) / 1e3} s` : ""}`;
  if (size < 3.6e6) return offset < 3.6e6 ? `${offset / 6e4} m` : `${Math.floor(offset / 3.6e6)} h${offset % 3.6e6 ? ` ${(offset % 3.6e6) / 6e4} m` : ""}`;
  return offset < 8.64e7 ? `${offset / 3.6e6} h` : `${Number((offset / 8.64e7).toFixed(1))} d`;
}

/** The common time axis of spans: from the first start to the last end, or to now if one goes on. */
export function axisOf(spans: readonly Span[], now: number): Axis {
  if (spans.length === 0) return { start: now, end: now + SHORTEST_MS, ticks: [] };
  const start = Math.min(...spans.map((span) => span.start));
  const last = Math.max(...spans.map((span) => span.end ?? Math.max(now, span.start)));
  const length = Math.max(last - start, SHORTEST_MS);
  const size = step(length);
  const ticks = [];
  for (let offset = 0; offset <= length; offset += size) {
    ticks.push({ at: start + offset, percent: (offset / length) * 100, label: tickLabel(offset, size) });
  }
  return { start, end: start + length, ticks };
}

/** Where a span lies on the axis, in per cent; kept inside it, since clocks of machines differ. */
export function placeSpan(span: Span, axis: Axis, now: number): { left: number; width: number } {
  const length = axis.end - axis.start;
  const clamp = (at: number) => Math.min(Math.max(at, axis.start), axis.end);
  const from = clamp(span.start);
  const to = clamp(span.end ?? Math.max(now, span.start));
  return { left: ((from - axis.start) / length) * 100, width: (Math.max(to - from, 0) / length) * 100 };
}
