import { useTicking } from "./clock";
import { formatClock, formatDuration, formatExact, formatRelative, toMs, type Moment } from "./timing";

/** How long ago (or until), the exact time on hover. In a sentence say `ago`; in a column the number is enough. */
export function Time({ at, ago, className }: { at: Moment; ago?: boolean; className?: string }) {
  const ms = toMs(at);
  const text = useTicking((now) => formatRelative(ms, now, ago));
  if (Number.isNaN(ms)) return null;
  return (
    <time dateTime={new Date(ms).toISOString()} title={formatExact(ms)} className={className}>
      {text}
    </time>
  );
}

/** When it was, by the clock: beside a duration, where "how long ago" would say the same number twice. */
export function Clock({ at, className }: { at: Moment; className?: string }) {
  const ms = toMs(at);
  const text = useTicking((now) => formatClock(ms, now));
  if (Number.isNaN(ms)) return null;
  return (
    <time dateTime={new Date(ms).toISOString()} title={formatExact(ms)} className={className}>
      {text}
    </time>
  );
}

/** From start to end; without an end it counts on. */
export function Duration({ start, end, className }: { start: Moment; end?: Moment | null; className?: string }) {
  const running = end === undefined || end === null;
  const text = useTicking((now) => formatDuration((running ? now : toMs(end)) - toMs(start)), running);
  return <span className={className}>{text}</span>;
}
