import { useRef, type KeyboardEvent, type ReactNode } from "react";
import { useNow } from "./clock";
import { cx } from "./cx";
import { type Tone } from "./state";
import { formatDuration } from "./timing";
import { axisOf, placeSpan, type Axis, type Span } from "./waterfallLayout";

export interface Bar extends Span {
  tone: Tone;
  /** Said on hover and to screen readers: "attempt 2, failed". */
  label: string;
  /** Hatched instead of filled: time spent waiting. */
  idle?: boolean;
}

export interface WaterfallRow {
  id: string;
  label: string;
  depth?: number;
  icon?: ReactNode;
  bars: readonly Bar[];
}

interface WaterfallProps {
  label: string;
  rows: readonly WaterfallRow[];
  selected?: string | null;
  onSelect?: (id: string) => void;
}

const BAR: Record<Tone, string> = {
  grey: "bg-grey",
  blue: "bg-blue",
  amber: "bg-amber",
  green: "bg-green",
  red: "bg-red",
  violet: "bg-violet",
  accent: "bg-accent",
};

function lengthOf(row: WaterfallRow, now: number): number {
  if (row.bars.length === 0) return 0;
  return Math.max(...row.bars.map((bar) => bar.end ?? now)) - Math.min(...row.bars.map((bar) => bar.start));
}

function Bars({ row, axis, now }: { row: WaterfallRow; axis: Axis; now: number }) {
  return row.bars.map((bar, index) => {
    const place = placeSpan(bar, axis, now);
    const live = bar.end === undefined || bar.end === null;
    return (
      <span
        // Bars are only ever added at the end of a row.
        key={index}
        title={`${bar.label} · ${formatDuration((bar.end ?? now) - bar.start)}`}
        style={{ left: `${place.left}%`, width: `max(3px, calc(${place.width}% - 1px))` }}
        className={cx(
          "absolute top-1/2 h-3 -translate-y-1/2 rounded-[3px]",
          BAR[bar.tone],
          bar.idle ? "opacity-35" : "opacity-85",
          live && "rounded-r-none after:absolute after:inset-y-0 after:right-0 after:w-0.5 after:animate-pulse-slow after:bg-current",
        )}
      />
    );
  });
}

/** Rows of bars on one time axis: it works while things run. Up and down move the selection. */
export function Waterfall({ label, rows, selected, onSelect }: WaterfallProps) {
  const root = useRef<HTMLDivElement>(null);
  const bars = rows.flatMap((row) => row.bars);
  const running = bars.some((bar) => bar.end === undefined || bar.end === null);
  const now = useNow(running);
  const axis = axisOf(bars, now);
  const tabStop = rows.some((row) => row.id === selected) ? selected : rows[0]?.id;

  function move(event: KeyboardEvent) {
    const delta = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    if (!delta || !onSelect) return;
    event.preventDefault();
    event.stopPropagation();
    const at = rows.findIndex((row) => row.id === selected);
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + delta))];
    if (!next) return;
    onSelect(next.id);
    root.current?.querySelector<HTMLElement>(`[data-row="${CSS.escape(next.id)}"]`)?.focus();
  }

  return (
    <div className="overflow-hidden rounded-md border border-line text-xs">
      <div className="grid grid-cols-[minmax(96px,34%)_1fr_64px] border-b border-line bg-sunken text-faint" aria-hidden>
        <span />
        <div className="relative mr-2 h-6">
          {axis.ticks.map((tick) => (
            <span key={tick.at} style={{ left: `${tick.percent}%` }} className={cx("absolute top-1 whitespace-nowrap", tick.percent > 0 && "-translate-x-1/2")}>
              {/* At the very end there is room for the line only. */}
              {tick.percent < 94 && tick.label}
            </span>
          ))}
        </div>
        <span />
      </div>
      <div ref={root} role="listbox" aria-label={label} tabIndex={-1} onKeyDown={move}>
        {rows.map((row) => (
          <div
            key={row.id}
            data-row={row.id}
            role="option"
            aria-selected={row.id === selected}
            aria-label={`${row.label}, ${row.bars.map((bar) => bar.label).join(", ") || "not begun"}, ${formatDuration(lengthOf(row, now))}`}
            tabIndex={row.id === tabStop ? 0 : -1}
            onClick={() => onSelect?.(row.id)}
            onKeyDown={(event) => {
              if (event.key !== "Enter") return;
              event.preventDefault();
              event.stopPropagation();
              onSelect?.(row.id);
            }}
            className={cx(
              "grid h-8 grid-cols-[minmax(96px,34%)_1fr_64px] items-center border-line -outline-offset-2 not-last:border-b",
              onSelect && "cursor-pointer hover:bg-hover",
              row.id === selected && "bg-accent-tint",
            )}
          >
            <span className="flex min-w-0 items-center gap-1.5 pr-2" style={{ paddingLeft: 10 + (row.depth ?? 0) * 14 }}>
              {row.icon}
              <span className="truncate" title={row.label}>
                {row.label}
              </span>
            </span>
            <span className="relative mr-2 h-full">
              {axis.ticks.map((tick) => (
                <span key={tick.at} style={{ left: `${tick.percent}%` }} className="absolute inset-y-0 w-px bg-line" />
              ))}
              <Bars row={row} axis={axis} now={now} />
            </span>
            <span className="pr-2.5 text-right text-faint">{row.bars.length > 0 && formatDuration(lengthOf(row, now))}</span>
          </div>
        ))}
      </div>
    </div>
  );
}
