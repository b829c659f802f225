import { CircleHelp, CircleX, Info, TriangleAlert, type LucideIcon } from "lucide-react";
import type { Finding, HealthView } from "@/api/types";
import { cx, TONE_TEXT, type Tone } from "@/ui";

const HEALTH: Record<HealthView["state"], { word: string; tone: Tone; icon?: LucideIcon }> = {
  up: { word: "Up", tone: "green" },
  down: { word: "Down", tone: "red", icon: CircleX },
  unknown: { word: "Unknown", tone: "grey", icon: CircleHelp },
};

/** Whether an agent is there: always a mark and a word. */
export function HealthBadge({ health }: { health: HealthView }) {
  const { word, tone, icon: Icon } = HEALTH[health.state];
  return (
    <span data-health={health.state} title={health.detail ?? undefined} className={cx("inline-flex items-center gap-1.5 text-sm font-normal whitespace-nowrap", TONE_TEXT[tone])}>
      {Icon ? <Icon className="size-3.5 shrink-0" aria-hidden /> : <span className="mx-[3px] size-2 shrink-0 rounded-full bg-current" aria-hidden />}
      {word}
    </span>
  );
}

const DIALECTS: Record<string, string> = { public: "As everybody gets it", v1: "A2A 1.0", v03: "A2A 0.3", vault: "AgentVault", gen: "Generic", relay: "Relay" };

const SHORT: Record<string, string> = { v1: "1.0", v03: "0.3" };

/** The dialects of an agent in little room: the versions of A2A itself, and how many others there are. */
export function dialectsShort(dialects: readonly string[]): string {
  const named = dialects.flatMap((dialect) => SHORT[dialect] ?? []);
  const others = dialects.length - named.length;
  return named.length === 0 ? dialects.join(", ") : named.join(", ") + (others > 0 ? ` +${others}` : "");
}

export const dialectName = (dialect: string): string => DIALECTS[dialect] ?? dialect;

const SEVERITIES: Record<Finding["severity"], { word: string; tone: Tone; icon: LucideIcon }> = {
  error: { word: "Error", tone: "red", icon: CircleX },
  warning: { word: "Warning", tone: "amber", icon: TriangleAlert },
  info: { word: "Note", tone: "grey", icon: Info },
};

export function SeverityMark({ severity }: { severity: Finding["severity"] }) {
  const { word, tone, icon: Icon } = SEVERITIES[severity];
  return (
    <span className={cx("inline-flex w-20 shrink-0 items-center gap-1.5 text-sm", TONE_TEXT[tone])}>
      <Icon className="size-3.5 shrink-0" aria-hidden />
      {word}
    </span>
  );
}
