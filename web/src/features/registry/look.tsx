import { BadgeCheck, CircleHelp, ShieldAlert } from "lucide-react";
import { cx, Tag, TONE_TEXT, type Tone } from "@/ui";

const HEALTH: Record<string, { word: string; tone: Tone }> = {
  up: { word: "Up", tone: "green" },
  down: { word: "Down", tone: "red" },
  unchecked: { word: "Not looked for", tone: "grey" },
};

export function HealthTag({ state, title }: { state: string | null; title?: string }) {
  const look = HEALTH[state ?? ""] ?? { word: state ?? "Not looked for", tone: "grey" as const };
  return (
    <Tag tone={look.tone} title={title}>
      {look.word}
    </Tag>
  );
}

/** What the server found out about the signature of a card. */
export function Signature({ verdict }: { verdict: string }) {
  const looks: Record<string, { text: string; tone: Tone; icon: typeof BadgeCheck }> = {
    trusted: { text: "Signed by a key that this server trusts", tone: "green", icon: BadgeCheck },
    untrusted: { text: "Signed, but not with a key that this server trusts", tone: "amber", icon: ShieldAlert },
    unsigned: { text: "Not signed", tone: "grey", icon: CircleHelp },
  };
  const look = looks[verdict] ?? { text: verdict, tone: "grey" as const, icon: CircleHelp };
  const Icon = look.icon;
  return (
    <span className={cx("inline-flex items-center gap-1.5", TONE_TEXT[look.tone])}>
      <Icon className="size-4" aria-hidden />
      {look.text}
    </span>
  );
}
