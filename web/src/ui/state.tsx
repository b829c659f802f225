import { Ban, CircleAlert, CircleCheck, CircleDashed, CircleQuestionMark, CircleSlash, CircleX, KeyRound, type LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { cx } from "./cx";

/** The states of a task, as the API names them. */
export const TASK_STATES = [
  "submitted",
  "working",
  "input-required",
  "auth-required",
  "completed",
  "canceled",
  "failed",
  "rejected",
  "unknown",
] as const;
export type TaskState = (typeof TASK_STATES)[number];

export type Tone = "grey" | "blue" | "amber" | "green" | "red" | "violet" | "accent";

export const TONE_TEXT: Record<Tone, string> = {
  grey: "text-grey",
  blue: "text-blue",
  amber: "text-amber",
  green: "text-green",
  red: "text-red",
  violet: "text-violet",
  accent: "text-accent-strong",
};

export const TONE_TINT: Record<Tone, string> = {
  grey: "bg-grey-tint",
  blue: "bg-blue-tint",
  amber: "bg-amber-tint",
  green: "bg-green-tint",
  red: "bg-red-tint",
  violet: "bg-violet-tint",
  accent: "bg-accent-tint",
};

interface Look {
  word: string;
  tone: Tone;
  /** Absent for "working": its mark is a pulsing dot. */
  icon?: LucideIcon;
  /** Drawn as an outline instead of a tint. */
  outline?: boolean;
  struck?: boolean;
}

const LOOKS: Record<TaskState, Look> = {
  submitted: { word: "Submitted", tone: "grey", icon: CircleDashed },
  working: { word: "Working", tone: "blue" },
  "input-required": { word: "Input required", tone: "amber", icon: CircleAlert },
  "auth-required": { word: "Auth required", tone: "amber", icon: KeyRound },
  completed: { word: "Completed", tone: "green", icon: CircleCheck },
  canceled: { word: "Canceled", tone: "grey", icon: CircleSlash, struck: true },
  failed: { word: "Failed", tone: "red", icon: CircleX },
  rejected: { word: "Rejected", tone: "red", icon: Ban, outline: true },
  unknown: { word: "Unknown", tone: "violet", icon: CircleQuestionMark },
};

/** How a state looks. A state this build does not know is shown as "unknown" rather than not at all. */
export function stateLook(state: string): Look {
  return LOOKS[state as TaskState] ?? LOOKS.unknown;
}

const ENDED: ReadonlySet<string> = new Set(["completed", "canceled", "failed", "rejected"]);
export const isEnded = (state: string): boolean => ENDED.has(state);

const WAITING: ReadonlySet<string> = new Set(["input-required", "auth-required"]);
export const isWaiting = (state: string): boolean => WAITING.has(state);

/** The mark alone, named for screen readers; put the word or the title beside it. */
export function StateDot({ state, className }: { state: string; className?: string }) {
  const look = stateLook(state);
  const Icon = look.icon;
  return (
    <span role="img" aria-label={look.word} title={look.word} className={cx("inline-flex size-4 shrink-0 items-center justify-center align-middle", TONE_TEXT[look.tone], className)}>
      {Icon ? <Icon className="size-3.5" aria-hidden /> : <span className="size-2 animate-pulse-slow rounded-full bg-current" />}
    </span>
  );
}

/** Mark and word. `plain` leaves the tint out, as in tables. */
export function StateBadge({ state, plain, className }: { state: string; plain?: boolean; className?: string }) {
  const look = stateLook(state);
  const Icon = look.icon;
  return (
    <span
      data-state={state}
      className={cx(
        "inline-flex items-center gap-1.5 align-middle whitespace-nowrap",
        plain ? "text-sm" : cx("h-6 rounded-md border px-2 text-xs font-medium", !look.outline && "border-transparent"),
        TONE_TEXT[look.tone],
        !plain && (look.outline ? "border-red-line" : TONE_TINT[look.tone]),
        className,
      )}
    >
      {Icon ? <Icon className="size-3.5 shrink-0" aria-hidden /> : <span className="mx-[3px] size-2 shrink-0 animate-pulse-slow rounded-full bg-current" aria-hidden />}
      <span className={look.struck ? "line-through decoration-grey/60" : undefined}>{look.word}</span>
    </span>
  );
}

/** A small word with a tone, for anything that is not a task state (health, bindings, counts). */
export function Tag({ tone = "grey", children, title }: { tone?: Tone; children: ReactNode; title?: string }) {
  return (
    <span title={title} className={cx("inline-flex h-5 items-center gap-1 rounded px-1.5 text-xs whitespace-nowrap", TONE_TEXT[tone], TONE_TINT[tone])}>
      {children}
    </span>
  );
}
