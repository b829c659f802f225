import { MOUNT } from "@/api/client";

const BASE = `${MOUNT}/console`;

/** The page to show after signing in, as the server takes it: inside the console, without the console's own prefix. */
export function pageOf(next: string | undefined): string {
  if (next === undefined) return "/";
  const page = next === BASE || next.startsWith(`${BASE}/`) ? next.slice(BASE.length) : next;
  // Anything that a browser could take for another host, or for a way up, is the first page.
  const isPage = /^\/(?![/\\])[^\\\s]*$/.test(page) && !page.includes("//") && !page.includes("..") && !page.startsWith("/signin");
  return isPage ? page : "/";
}

/** Where that page is. */
export const addressOf = (page: string): string => BASE + page;
