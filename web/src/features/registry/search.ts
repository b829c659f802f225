import { flag, text, type RawSearch } from "@/app/search";

export interface RegistrySearch {
  q?: string;
  own?: true;
}

export function registrySearch(search: RawSearch): RegistrySearch {
  return { q: text(search, "q"), own: flag(search, "own") };
}
