import { Outlet, useNavigate, useRouter } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useState } from "react";
import { chunk } from "@/api/chunks";
import { useSession } from "@/api/session";
import { ErrorState, SkeletonPage, useShortcut } from "@/ui";
import { useGlobalActions } from "./globalActions";
import { Help } from "./Help";
import { Rail } from "./Rail";

const Palette = lazy(() => chunk(() => import("./Palette")));

function focusSearch(): void {
  document.querySelector<HTMLInputElement>("[data-search]")?.focus();
}

/** Everything around a page, for those who are let in; others are sent to the sign-in and come back to the same address. */
export function Frame() {
  const session = useSession();
  const navigate = useNavigate();
  const router = useRouter();
  const isRefused = session.data !== undefined && !session.data.signedIn && !session.data.isOpen;
  useEffect(() => {
    if (isRefused) void navigate({ to: "/signin", search: { next: router.state.location.href }, replace: true });
  }, [isRefused, navigate, router]);
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  useGlobalActions();
  useShortcut({ keys: "Ctrl+k", label: "Find or do", group: "Everywhere" }, () => setPalette(true));
  useShortcut({ keys: "/", label: "Search in the list", group: "Everywhere" }, focusSearch);
  useShortcut({ keys: "?", label: "Show the keys", group: "Everywhere" }, () => setHelp(true));
  if (isRefused) return null;
  if (session.isError && !session.data) {
    return <ErrorState title="The console cannot reach its server" error={session.error} safe="Nothing is lost: tasks are stored on the server." onRetry={() => void session.refetch()} />;
  }
  return (
    <div className="flex h-full">
      <a href="#main" className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-raised focus:p-2">
        Skip to the content
      </a>
      <Rail onPalette={() => setPalette(true)} />
      <main id="main" className="min-w-0 flex-1 max-phone:pb-14">
        <Suspense fallback={<SkeletonPage />}>
          <Outlet />
        </Suspense>
      </main>
      <Help open={help} onClose={() => setHelp(false)} />
      {palette && (
        <Suspense fallback={null}>
          <Palette onClose={() => setPalette(false)} />
        </Suspense>
      )}
    </div>
  );
}
