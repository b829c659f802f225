/** How the pages talk to the server: JSON over same-origin fetch, errors as one type. */

export interface ApiFinding {
  field: string;
  problem: string;
}

/** A refusal by the server (or, with status 0, no answer at all). The message is fit to be shown. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly findings: readonly ApiFinding[] = [],
  ) {
    super(findings.length ? `${detail} (${findings.map((finding) => `${finding.field}: ${finding.problem}`).join("; ")})` : detail);
  }
}

/** The server may be mounted below a prefix, which it writes into the page. */
export const MOUNT = typeof document === "undefined" ? "" : (document.querySelector<HTMLMetaElement>('meta[name="accord-mount"]')?.content ?? "");

/** The address of something under /api/, for links, images and transports. `api` and `request` add the prefix themselves. */
export const apiUrl = (path: string): string => MOUNT + path;

/** The address of a page of the console, for links that the router does not make. */
export const pageUrl = (path: string): string => `${MOUNT}/console${path}`;

type QueryValue = string | number | boolean | null | undefined | readonly string[];
export type Query = Record<string, QueryValue>;

/** Path and query as one address; absent and empty values are left out, lists repeat their name. */
export function address(path: string, query: Query = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const single of Array.isArray(value) ? value : [value]) search.append(name, String(single));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}

const onUnauthorized = new Set<() => void>();

/** The shell asks to hear of a 401, wherever it comes from, and shows the sign-in. */
export function whenUnauthorized(listener: () => void): () => void {
  onUnauthorized.add(listener);
  return () => onUnauthorized.delete(listener);
}

async function refusal(response: Response): Promise<ApiError> {
  const body: unknown = await response.json().catch(() => null);
  const known = typeof body === "object" && body !== null ? (body as { detail?: unknown; findings?: ApiFinding[] }) : {};
  const detail = typeof known.detail === "string" ? known.detail : `The server answered ${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, detail, known.findings ?? []);
}

/** A request whose answer is not JSON, or is a stream; refusals are thrown all the same. */
export async function request(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(apiUrl(url), {
      method,
      signal,
      credentials: "same-origin",
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (problem) {
    if (signal?.aborted) throw problem;
    throw new ApiError(0, "The server cannot be reached");
  }
  if (response.ok) return response;
  if (response.status === 401) for (const listener of onUnauthorized) listener();
  throw await refusal(response);
}

async function json<T>(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const response = await request(method, url, body, signal);
  // 204 says that there is nothing; those who ask for such a thing expect undefined.
  return (response.status === 204 ? undefined : await response.json()) as T;
}

export const api = {
  get: <T>(path: string, query?: Query, signal?: AbortSignal) => json<T>("GET", address(path, query), undefined, signal),
  post: <T>(path: string, body: unknown = {}) => json<T>("POST", path, body),
  patch: <T>(path: string, body: unknown) => json<T>("PATCH", path, body),
  put: <T>(path: string, body: unknown) => json<T>("PUT", path, body),
  delete: <T = void>(path: string) => json<T>("DELETE", path),
};
