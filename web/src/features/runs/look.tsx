import { Bot, CircleCheck, CircleDashed, CircleSlash, CircleX, Clock, Download, FastForward, GitBranch, Hand, Layers, type LucideIcon, Network, SquareTerminal, TrafficCone } from "lucide-react";
import type { RunRow, StepStatus, StepView } from "@/api/types";
import { cx, TONE_TEXT, TONE_TINT, type Tone } from "@/ui";

export interface StepLook {
  word: string;
  tone: Tone;
  /** Absent for what is being worked at: its mark is a pulsing dot. */
  icon?: LucideIcon;
}

const LOOKS: Record<StepStatus, StepLook> = {
  pending: { word: "Pending", tone: "grey", icon: CircleDashed },
  running: { word: "Running", tone: "blue" },
  waiting: { word: "Waits to try again", tone: "amber", icon: Clock },
  completed: { word: "Completed", tone: "green", icon: CircleCheck },
  failed: { word: "Failed", tone: "red", icon: CircleX },
  skipped: { word: "Skipped", tone: "grey", icon: FastForward },
  cancelled: { word: "Canceled", tone: "grey", icon: CircleSlash },
};

const PARKED: Record<string, StepLook> = {
  approval: { word: "Waits for approval", tone: "amber", icon: Hand },
  wait: { word: "Waits", tone: "amber", icon: Clock },
};

/** How a step looks: somebody who has to decide is no work in progress. */
export function stepLook(step: Pick<StepView, "status" | "type" | "isReused">): StepLook {
  if (step.status === "running" && PARKED[step.type]) return PARKED[step.type] as StepLook;
  if (step.isReused) return { ...LOOKS.completed, word: "Done before", icon: Download };
  return LOOKS[step.status];
}

const TYPES: Record<string, { word: string; icon: LucideIcon }> = {
  agent: { word: "Agent", icon: Bot },
  a2a: { word: "A2A agent", icon: Bot },
  deterministic: { word: "Command", icon: SquareTerminal },
  worktree: { word: "Worktree", icon: GitBranch },
  approval: { word: "Approval", icon: Hand },
  wait: { word: "Wait", icon: Clock },
  workflow: { word: "Workflow", icon: Network },
  map: { word: "Map", icon: Layers },
  barrier: { word: "Barrier", icon: TrafficCone },
};

export const typeWord = (type: string): string => TYPES[type]?.word ?? type;

export function TypeIcon({ type, className }: { type: string; className?: string }) {
  const Icon = TYPES[type]?.icon ?? CircleDashed;
  return <Icon className={cx("size-3.5 shrink-0", className)} aria-hidden />;
}

export function StepMark({ step, className }: { step: Pick<StepView, "status" | "type" | "isReused">; className?: string }) {
  const look = stepLook(step);
  const Icon = look.icon;
  return (
    <span role="img" aria-label={look.word} title={look.word} className={cx("inline-flex size-4 shrink-0 items-center justify-center", TONE_TEXT[look.tone], className)}>
      {Icon ? <Icon className="size-3.5" aria-hidden /> : <span className="size-2 animate-pulse-slow rounded-full bg-current" />}
    </span>
  );
}

export function StepBadge({ step }: { step: Pick<StepView, "status" | "type" | "isReused"> }) {
  const look = stepLook(step);
  const Icon = look.icon;
  return (
    <span data-step-status={step.status} className={cx("inline-flex h-6 items-center gap-1.5 rounded-md px-2 text-xs font-medium whitespace-nowrap", TONE_TEXT[look.tone], TONE_TINT[look.tone])}>
      {Icon ? <Icon className="size-3.5 shrink-0" aria-hidden /> : <span className="mx-[3px] size-2 shrink-0 animate-pulse-slow rounded-full bg-current" aria-hidden />}
      {look.word}
    </span>
  );
}

const ORDER: readonly StepStatus[] = ["completed", "failed", "cancelled", "running", "waiting", "skipped", "pending"];
const FILL: Record<StepStatus, string> = {
  completed: "bg-green",
  failed: "bg-red",
  cancelled: "bg-grey",
  running: "bg-blue",
  waiting: "bg-amber",
  skipped: "bg-line-strong",
  pending: "bg-line",
};

/** Steps that wait for somebody are counted as running: they are told apart here, as everywhere else. */
function withWaits({ counts, waits }: Pick<RunRow, "counts" | "waits">): Record<string, number> {
  const waiting = Math.min(waits.length, counts.running ?? 0);
  if (waiting === 0) return counts;
  return { ...counts, running: (counts.running ?? 0) - waiting, waiting: (counts.waiting ?? 0) + waiting };
}

/** How far a run is, as one thin bar; in words for those who hover or listen. */
export function Progress({ run, className }: { run: Pick<RunRow, "counts" | "waits">; className?: string }) {
  const counts = withWaits(run);
  const parts = ORDER.filter((status) => (counts[status] ?? 0) > 0);
  const total = parts.reduce((sum, status) => sum + (counts[status] ?? 0), 0);
  if (total === 0) return null;
  const words = parts.map((status) => `${counts[status]} ${LOOKS[status].word.toLowerCase()}`).join(", ");
  return (
    <span className={cx("inline-flex items-center gap-2", className)} title={words}>
      <span role="img" aria-label={words} className="inline-flex h-1.5 min-w-12 flex-1 gap-px overflow-hidden rounded-full">
        {parts.map((status) => (
          <span key={status} style={{ flexGrow: counts[status] }} className={FILL[status]} />
        ))}
      </span>
      <span className="shrink-0 text-xs text-faint">
        {counts.completed ?? 0}/{total}
      </span>
    </span>
  );
}
