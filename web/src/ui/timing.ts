const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export type Moment = string | number | Date;
export const toMs = (moment: Moment): number => (typeof moment === "number" ? moment : new Date(moment).getTime());

/** "450 ms", "12 s", "3 m 5 s", "2 h 10 m", "4 d 3 h". */
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return "0 s";
  if (ms < SECOND) return `${Math.round(ms)} ms`;
  if (ms < 10 * SECOND) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return pair(ms, MINUTE, "m", SECOND, "s");
  if (ms < DAY) return pair(ms, HOUR, "h", MINUTE, "m");
  return pair(ms, DAY, "d", HOUR, "h");
}

function pair(ms: number, big: number, bigName: string, small: number, smallName: string): string {
  const rest = Math.floor((ms % big) / small);
  return `${Math.floor(ms / big)} ${bigName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** "now", "12 s", "3 m", "5 h", "6 d", then the date; "in 3 m" for what is to come. */
export function formatRelative(at: number, now: number, inSentence = false): string {
  const ago = now - at;
  const size = Math.abs(ago);
  if (size < 5 * SECOND) return "now";
  if (size >= 14 * DAY) return new Date(at).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
  const [unit, name] = size < MINUTE ? [SECOND, "s"] : size < HOUR ? [MINUTE, "m"] : size < DAY ? [HOUR, "h"] : ([DAY, "d"] as const);
  const text = `${Math.floor(size / (unit as number))} ${name}`;
  if (ago < 0) return `in ${text}`;
  return inSentence ? `${text} ago` : text;
}

export function formatExact(at: number): string {
  return new Date(at).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** "08:42:45", where the reader is. */
export function formatTime(at: number): string {
  return new Date(at).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}

/** The time of today; of another day the date as well. */
export function formatClock(at: number, now: number): string {
  const isToday = new Date(at).toDateString() === new Date(now).toDateString();
  return isToday ? formatTime(at) : formatExact(at);
}
