const UNITS = ["kB", "MB", "GB", "TB"] as const;

/** A number of bytes in the largest unit that fits, with one decimal below 10. */
export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), UNITS.length);
  const amount = bytes / 1024 ** power;
  return `${amount.toFixed(power > 1 && amount < 10 ? 1 : 0)} ${UNITS[power - 1]}`;
}
