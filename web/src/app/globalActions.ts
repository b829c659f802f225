import { useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import { useSession } from "@/api/session";
import { usePaletteAction } from "./actions";
import { chooseTheme } from "./theme";

/** The palette shows these last: what the page offers matters more. */
export const GLOBAL_GROUP = "Console";

/** Ends the session and forgets what was read with it. */
export function useSignOut(): () => void {
  const client = useQueryClient();
  return () =>
    void api.delete("/api/session").finally(() => {
      client.removeQueries({ predicate: (query) => query.queryKey[0] !== keys.session[0] });
      void client.invalidateQueries({ queryKey: keys.session });
    });
}

/** What the palette offers on every page. */
export function useGlobalActions(): void {
  const session = useSession();
  const signOut = useSignOut();
  usePaletteAction({ id: "theme-system", label: "Theme: as the system", group: GLOBAL_GROUP, keywords: "dark light" }, () => chooseTheme("system"));
  usePaletteAction({ id: "theme-light", label: "Theme: light", group: GLOBAL_GROUP }, () => chooseTheme("light"));
  usePaletteAction({ id: "theme-dark", label: "Theme: dark", group: GLOBAL_GROUP }, () => chooseTheme("dark"));
  usePaletteAction({ id: "sign-out", label: "Sign out", group: GLOBAL_GROUP }, signOut, session.data !== undefined && !session.data.isOpen);
}
