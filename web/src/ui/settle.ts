/**
 * Keeps a list still while somebody reads it. `held` are the keys on screen, in their order; rows that changed are shown
 * as they now are, rows that are gone go, rows below the last held one (older pages) are added, and rows that would push
 * the others down are counted instead of shown.
 */
export function settle<Row extends object>(held: readonly string[], rows: readonly Row[], key: (row: Row) => string): { rows: Row[]; waiting: number } {
  const current = new Map(rows.map((row) => [key(row), row]));
  const known = new Set(held);
  const shown = held.flatMap((name) => {
    const row = current.get(name);
    return row === undefined ? [] : [row];
  });
  const lastKnown = rows.findLastIndex((row) => known.has(key(row)));
  let waiting = 0;
  rows.forEach((row, index) => {
    if (known.has(key(row))) return;
    if (index > lastKnown) shown.push(row);
    else waiting += 1;
  });
  return { rows: shown, waiting };
}
