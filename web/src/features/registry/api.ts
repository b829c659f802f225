import { api } from "@/api/client";

/** The registry's own API is older than the console's, and writes its members in snake_case. */

export interface Listed {
  id: string;
  human_readable_id: string;
  name: string;
  description: string;
  is_active: boolean;
  visibility: "public" | "tenant" | "private";
  health: string | null;
  updated_at: string | null;
}

export interface RegistryPage {
  items: Listed[];
  pagination: { total_items: number; limit: number; offset: number };
}

/** What is known about the signatures of a card. */
export interface Verdict {
  state: string;
  key?: string | null;
  detail: string;
}

export interface Published {
  id: string;
  human_readable_id: string;
  name: string;
  description: string;
  is_active: boolean;
  visibility: string;
  developer_id: string;
  developer_is_verified: boolean;
  is_own: boolean;
  card_data: Record<string, unknown>;
  created_at: string;
  updated_at: string;
  signature: Verdict;
  health: { state: string | null; detail: string | null; failures: number; checked_at: string | null; up_at: string | null };
}

export interface Validated {
  is_valid: boolean;
  detail: string | null;
  human_readable_id?: string | null;
  signature?: Verdict;
  findings?: { field: string; problem: string }[];
}

export const CARDS = "/api/v1/agent-cards";
export const PAGE = 50;

export const registryKeys = {
  list: (filters: object) => ["registry", filters] as const,
  one: (id: string) => ["registry", "card", id] as const,
};

export const registry = {
  search: (q: string | undefined, own: boolean | undefined, skip: number, signal?: AbortSignal) =>
    api.get<RegistryPage>(`${CARDS}/`, { search: q, owned_only: own, active_only: own ? false : undefined, skip, limit: PAGE }, signal),
  find: (id: string, signal?: AbortSignal) => api.get<Published>(`${CARDS}/${id}`, {}, signal),
  check: (id: string) => api.post<Published>(`${CARDS}/${id}/check`),
  validate: (card: unknown) => api.post<Validated>("/api/v1/utils/validate-card", { card_data: card }),
  publish: (card: unknown, visibility: string, name: string) =>
    api.post<Published>(`${CARDS}/`, { card_data: card, visibility, ...(name ? { human_readable_id: name } : {}) }),
  remove: (id: string) => api.delete(`${CARDS}/${id}`),
};
