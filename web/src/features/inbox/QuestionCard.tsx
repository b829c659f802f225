import { CircleAlert, Hourglass, KeyRound, PanelRight, Play, ShieldQuestionMark, type LucideIcon } from "lucide-react";
import type { Question, Waiting } from "@/api/types";
import { cx, IconButton, Markdown, Time } from "@/ui";
import { titleOf } from "../tasks/title";
import { AnswerForm } from "./AnswerForm";

const LOOKS: Record<Waiting, { word: string; icon: LucideIcon }> = {
  input: { word: "Question", icon: CircleAlert },
  auth: { word: "Credentials", icon: KeyRound },
  approval: { word: "Approval", icon: ShieldQuestionMark },
  event: { word: "Event", icon: Hourglass },
  execute: { word: "Planned", icon: Play },
};

interface QuestionCardProps {
  question: Question;
  isOpen: boolean;
  onSelect: () => void;
  onOpenTask: () => void;
}

/** One thing that waits: a line while closed, the whole question with its form while open. */
export function QuestionCard({ question, isOpen, onSelect, onOpenTask }: QuestionCardProps) {
  const look = LOOKS[question.kind];
  const Icon = look.icon;
  return (
    <article className={cx("px-6 py-3 max-phone:px-4", isOpen ? "bg-bg" : "hover:bg-hover")}>
      <div className="flex items-center gap-3 text-sm">
        <Icon className="size-4 shrink-0 text-amber" aria-hidden />
        <button type="button" onClick={onSelect} aria-expanded={isOpen} className="flex min-w-0 flex-1 items-baseline gap-3 text-left">
          <span className="w-20 shrink-0 text-xs text-amber max-phone:w-auto">{look.word}</span>
          <span className={cx("min-w-0 truncate", isOpen && "font-semibold")}>{titleOf(question.task) ?? question.task.id}</span>
          {!isOpen && <span className="min-w-0 flex-1 truncate text-faint max-phone:hidden">{question.text}</span>}
        </button>
        <span className="shrink-0 text-xs text-faint max-phone:hidden">{question.step ? `${question.task.agent} / ${question.step}` : question.task.agent}</span>
        <Time at={question.since} className="w-12 shrink-0 text-right text-xs text-faint" />
        <IconButton label="Open the task (o)" size="small" onClick={onOpenTask}>
          <PanelRight />
        </IconButton>
      </div>
      {isOpen && (
        <div className="mt-3 flex max-w-2xl flex-col gap-3 pl-7 max-phone:pl-0">
          <Markdown text={question.text} />
          <AnswerForm question={question} isSelected />
        </div>
      )}
    </article>
  );
}
