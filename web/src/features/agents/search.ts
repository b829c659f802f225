import { oneOf, text, type RawSearch } from "@/app/search";

export const TABS = ["skills", "findings", "card"] as const;

export interface AgentsSearch {
  q?: string;
  /** Which part of an agent is shown, and in which dialect its card. */
  tab?: (typeof TABS)[number];
  dialect?: string;
}

export function agentsSearch(search: RawSearch): AgentsSearch {
  return { q: text(search, "q"), tab: oneOf(search, "tab", TABS), dialect: text(search, "dialect") };
}

export const BINDINGS = ["JSONRPC", "HTTP+JSON"] as const;

export interface InspectSearch {
  dialect?: string;
  binding?: (typeof BINDINGS)[number];
  operation?: string;
  /** The task that requests are about. */
  task?: string;
  /** An agent elsewhere is asked here, or at its own address. */
  at?: "remote";
}

export function inspectSearch(search: RawSearch): InspectSearch {
  return {
    dialect: text(search, "dialect"),
    binding: oneOf(search, "binding", BINDINGS),
    operation: text(search, "operation"),
    task: text(search, "task"),
    at: oneOf(search, "at", ["remote"]),
  };
}
