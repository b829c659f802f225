import { Check, Clock, RotateCw, Skull } from "lucide-react";
import type { ReactNode } from "react";
import { cx, TONE_TEXT, type Tone } from "@/ui";
import type { DeliveryState } from "./search";

const LOOKS: Record<DeliveryState, { word: string; tone: Tone; icon: ReactNode }> = {
  delivered: { word: "Delivered", tone: "green", icon: <Check className="size-3.5" aria-hidden /> },
  pending: { word: "Pending", tone: "blue", icon: <Clock className="size-3.5" aria-hidden /> },
  retrying: { word: "Retrying", tone: "amber", icon: <RotateCw className="size-3.5" aria-hidden /> },
  dead: { word: "Given up", tone: "red", icon: <Skull className="size-3.5" aria-hidden /> },
};

export const stateWord = (state: DeliveryState): string => LOOKS[state].word;

/** How a webhook stands: always a mark and a word. */
export function DeliveryBadge({ state }: { state: DeliveryState }) {
  const look = LOOKS[state];
  return (
    <span data-state={state} className={cx("flex items-center gap-1.5 whitespace-nowrap", TONE_TEXT[look.tone])}>
      {look.icon}
      {look.word}
    </span>
  );
}

/** The mark alone, where there is no room for its word. */
export function DeliveryMark({ state }: { state: DeliveryState }) {
  const look = LOOKS[state];
  return (
    <span role="img" aria-label={look.word} title={look.word} className={cx("inline-flex align-middle", TONE_TEXT[look.tone])}>
      {look.icon}
    </span>
  );
}

/** The answer of a receiver: 2xx is the only good one. */
export function StatusCode({ status }: { status: number | null }) {
  if (status === null) return <span className="text-faint">no answer</span>;
  return <code className={status >= 200 && status < 300 ? "text-green" : "text-red"}>{status}</code>;
}
