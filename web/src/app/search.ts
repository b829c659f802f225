/** Reads search parameters of an address that anybody may have typed: what is not understood is left out. */

export type RawSearch = Record<string, unknown>;

/** "?state=failed,rejected&top=1": readable, and easy to type. */
export function writeSearch(search: RawSearch): string {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    written.set(name, Array.isArray(value) ? value.join(",") : value === true ? "1" : String(value));
  }
  const query = written.toString().replaceAll("%2C", ",").replaceAll("%2F", "/").replaceAll("%3A", ":");
  return query ? `?${query}` : "";
}

/** Everything is text; what a page makes of it is said in its own `search.ts`. */
export function readSearch(query: string): RawSearch {
  return Object.fromEntries(new URLSearchParams(query));
}

export function text(search: RawSearch, name: string): string | undefined {
  const value = search[name];
  if (typeof value === "string") return value || undefined;
  return typeof value === "number" ? String(value) : undefined;
}

export function flag(search: RawSearch, name: string): true | undefined {
  const value = search[name];
  return value === true || value === 1 || value === "1" || value === "true" ? true : undefined;
}

export function oneOf<const Value extends string>(search: RawSearch, name: string, allowed: readonly Value[]): Value | undefined {
  return allowed.find((value) => value === search[name]);
}

/** A list is written "a,b" in the address. */
export function someOf<const Value extends string>(search: RawSearch, name: string, allowed: readonly Value[]): Value[] | undefined {
  const value = search[name];
  const given = Array.isArray(value) ? value.map(String) : typeof value === "string" ? value.split(",") : [];
  const known = allowed.filter((candidate) => given.includes(candidate));
  return known.length > 0 ? known : undefined;
}
