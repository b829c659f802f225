import { readHeaders, withoutCredentials, writeHeaders, type Request } from "./request";

const KEPT = 50;

export interface Earlier extends Request {
  dialect: string;
  binding: string;
  operation: string;
}

const place = (slug: string) => `accord.inspector.${slug}`;

/** Requests that were sent to an agent from this browser, the newest last; credentials are not kept. */
export function earlier(slug: string, storage: Storage = localStorage): Earlier[] {
  try {
    const found: unknown = JSON.parse(storage.getItem(place(slug)) ?? "[]");
    return Array.isArray(found) ? (found as Earlier[]) : [];
  } catch {
    return [];
  }
}

export function remember(slug: string, sent: Earlier, storage: Storage = localStorage): Earlier[] {
  const kept = { ...sent, headers: writeHeaders(withoutCredentials(readHeaders(sent.headers).headers)) };
  const text = JSON.stringify(kept);
  const known = earlier(slug, storage).filter((one) => JSON.stringify(one) !== text);
  const next = [...known, kept].slice(-KEPT);
  try {
    storage.setItem(place(slug), JSON.stringify(next));
  } catch {
    // A browser that keeps nothing still sends.
  }
  return next;
}
