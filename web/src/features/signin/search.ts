import { oneOf, text, type RawSearch } from "@/app/search";

export interface SigninSearch {
  /** Where to go afterwards: an address inside the console. */
  next?: string;
  error?: "denied" | "expired" | "failed";
}

export function signinSearch(search: RawSearch): SigninSearch {
  return { next: text(search, "next"), error: oneOf(search, "error", ["denied", "expired", "failed"]) };
}
