import { Link, useNavigate } from "@tanstack/react-router";
import { Ellipsis, House, LogOut, Monitor, Moon, Search, Sun } from "lucide-react";
import { useSession } from "@/api/session";
import { useInbox } from "@/features/inbox/queries";
import { cx, IconButton, Menu, useShortcut } from "@/ui";
import { ConnectionDot, ConnectionMark } from "./ConnectionDot";
import { useSignOut } from "./globalActions";
import { Logo } from "./Logo";
import { PLACES } from "./places";
import { chooseTheme, useThemeChoice, type ThemeChoice } from "./theme";

type Place = (typeof PLACES)[number];

function InboxCount() {
  const inbox = useInbox();
  const count = inbox.data?.items.length ?? 0;
  if (count === 0) return null;
  return (
    <span className="rounded-full bg-amber-tint px-1.5 text-xs font-medium text-amber max-rail:absolute max-rail:top-0.5 max-rail:right-0.5 max-rail:px-1 max-rail:text-[10px] max-rail:leading-4">
      {count}
      <span className="sr-only"> waiting</span>
    </span>
  );
}

function PlaceLink({ place }: { place: Place }) {
  const navigate = useNavigate();
  useShortcut({ keys: `g ${place.key}`, label: `Go to ${place.label}`, group: "Go to" }, () => void navigate({ to: place.to }));
  const Icon = place.icon;
  return (
    <Link
      to={place.to}
      title={place.label}
      activeProps={{ className: "bg-active text-ink font-medium", "aria-current": "page" }}
      inactiveProps={{ className: "text-soft hover:bg-hover hover:text-ink" }}
      className="relative flex h-8 items-center gap-2.5 rounded-md px-2 transition-colors duration-[120ms] max-rail:size-9 max-rail:justify-center max-rail:px-0 max-phone:size-11"
    >
      <Icon className="size-4 shrink-0" aria-hidden />
      <span className="flex-1 max-rail:sr-only">{place.label}</span>
      {place.to === "/inbox" && <InboxCount />}
    </Link>
  );
}

const THEMES: Record<ThemeChoice, { next: ThemeChoice; label: string; icon: typeof Sun }> = {
  system: { next: "light", label: "Theme: as the system", icon: Monitor },
  light: { next: "dark", label: "Theme: light", icon: Sun },
  dark: { next: "system", label: "Theme: dark", icon: Moon },
};

export function ThemeSwitch() {
  const theme = THEMES[useThemeChoice()];
  const Icon = theme.icon;
  return (
    <IconButton label={theme.label} onClick={() => chooseTheme(theme.next)}>
      <Icon />
    </IconButton>
  );
}

function SignOut() {
  return (
    <IconButton label="Sign out" onClick={useSignOut()}>
      <LogOut />
    </IconButton>
  );
}

function Who() {
  const { data: session } = useSession();
  if (!session) return null;
  return (
    <div className="min-w-0 px-2 text-xs max-rail:hidden">
      <div className="truncate text-soft">{session.isOpen ? "Open server" : session.name}</div>
      {session.tenant && <div className="truncate text-faint">{session.tenant}</div>}
    </div>
  );
}

/** What the rail's foot offers elsewhere, on a phone, which has no Ctrl-K either. */
function More({ onPalette }: { onPalette: () => void }) {
  const { data: session } = useSession();
  const navigate = useNavigate();
  const theme = THEMES[useThemeChoice()];
  const ThemeIcon = theme.icon;
  const signOut = useSignOut();
  const items = [
    { label: "Start", icon: <House />, onSelect: () => void navigate({ to: "/" }) },
    { label: "Find or do", icon: <Search />, onSelect: onPalette },
    { label: theme.label, icon: <ThemeIcon />, onSelect: () => chooseTheme(theme.next) },
    ...(session && !session.isOpen ? [{ label: "Sign out", icon: <LogOut />, onSelect: signOut }] : []),
  ];
  const head = (
    <div className="mb-1 flex h-8 items-center border-b border-line">
      <ConnectionDot inWords />
    </div>
  );
  return (
    <div className="relative hidden h-full items-center max-phone:flex">
      <Menu label="More" icon={<Ellipsis />} items={items} head={head} up />
      <ConnectionMark />
    </div>
  );
}

/** The way around: a rail on the left, icons only below 1,100 px, a bar at the bottom of a phone. */
export function Rail({ onPalette }: { onPalette: () => void }) {
  const { data: session } = useSession();
  return (
    <nav
      aria-label="Main"
      className={cx(
        "flex w-52 shrink-0 flex-col border-r border-line bg-sunken p-3",
        "max-rail:w-14 max-rail:items-center max-rail:px-2",
        "max-phone:fixed max-phone:inset-x-0 max-phone:bottom-0 max-phone:z-20 max-phone:h-14 max-phone:w-full max-phone:flex-row max-phone:border-t max-phone:border-r-0 max-phone:py-0",
      )}
    >
      <Link to="/" aria-label="Accord, start" className="mb-4 flex h-8 items-center gap-2 px-2 font-semibold tracking-tight max-rail:px-0 max-phone:hidden">
        <Logo className="size-5" />
        <span className="max-rail:sr-only">Accord</span>
      </Link>
      <div className="flex flex-1 flex-col gap-0.5 max-rail:items-center max-phone:flex-row max-phone:justify-between max-phone:overflow-x-auto">
        {PLACES.map((place) => (
          <PlaceLink key={place.to} place={place} />
        ))}
      </div>
      <More onPalette={onPalette} />
      <div className="flex flex-col gap-3 max-rail:items-center max-phone:hidden">
        <ConnectionDot />
        <Who />
        <div className="flex gap-1 border-t border-line pt-2 max-rail:flex-col">
          <IconButton label="Find or do (Ctrl K)" onClick={onPalette}>
            <Search />
          </IconButton>
          <ThemeSwitch />
          {session && !session.isOpen && <SignOut />}
        </div>
      </div>
    </nav>
  );
}
