import { ChevronRight, Play } from "lucide-react";
import { Button, cx, Duration, isEnded, Markdown, StateDot, stateLook, TONE_TEXT, useTicking } from "@/ui";
import { TraceOf } from "@/features/tasks/canvas/Trace";
import { useTaskAction } from "@/features/tasks/queries";
import { useWaitsToResume, WAITS_TO_RESUME } from "@/features/tasks/progress";
import type { TaskData } from "./message";
import { QuestionForm, type Answer } from "./QuestionForm";
import { useTaskRow } from "./taskRows";
import { chipOf, type Asked, type Chip } from "./tasks";

interface TaskChipProps {
  data: TaskData;
  /** What stands above it already: a question that is part of that is not repeated. */
  said?: string;
  /** Whether its canvas is open beside the conversation. */
  isOpen: boolean;
  onOpen: (taskId: string) => void;
  /** How a question is answered: in the conversation, or, without this, to the task alone. */
  onAnswer?: (answer: Answer) => Promise<unknown>;
}

/** A task inside a message: it goes on changing for as long as the page is open, and asks in place. */
export function TaskChip({ data, said = "", isOpen, onOpen, onAnswer }: TaskChipProps) {
  const row = useTaskRow(data.taskId);
  const chip = chipOf(data, row);
  return (
    <div
      data-task={chip.id}
      data-state={chip.status}
      className={cx(
        "overflow-hidden rounded-md border bg-raised transition-colors duration-[120ms]",
        chip.question ? "border-amber-line" : isOpen ? "border-accent" : "border-line",
      )}
    >
      <div className="relative flex items-center">
        <button
          type="button"
          aria-label={`Open the task ${chip.title}`}
          aria-pressed={isOpen}
          onClick={() => onOpen(chip.id)}
          className="flex min-w-0 flex-1 items-start gap-2.5 px-3 py-2.5 text-left hover:bg-hover focus-visible:outline-offset-[-2px]"
        >
          <StateDot state={chip.status} className="mt-0.5" />
          <span className="min-w-0 flex-1">
            <span className="flex items-baseline gap-2">
              <span className="min-w-0 flex-1 truncate text-sm font-medium">{chip.title}</span>
              <Elapsed chip={chip} />
            </span>
            <StatusLine chip={chip} />
          </span>
          {chip.waits === "execute" ? <span aria-hidden className="w-24 shrink-0" /> : <ChevronRight className="mt-0.5 size-4 shrink-0 text-faint" aria-hidden />}
        </button>
        {chip.waits === "execute" && <Execute id={chip.id} title={chip.title} />}
      </div>
      {chip.status === "failed" && <TraceOf taskId={chip.id} className="border-t border-line px-3 py-2.5" />}
      {chip.question && <Asking chip={chip} question={chip.question} said={said} onAnswer={onAnswer} />}
    </div>
  );
}

function Elapsed({ chip }: { chip: Chip }) {
  if (!chip.createdAt || chip.waits === "execute") return null;
  return <Duration start={chip.createdAt} end={chip.endedAt} className="shrink-0 text-xs text-faint" />;
}

function StatusLine({ chip }: { chip: Chip }) {
  const look = stateLook(chip.status);
  const isLeft = useWaitsToResume(chip.status);
  const word = isLeft ? WAITS_TO_RESUME : chip.waits === "execute" ? "Planned" : look.word;
  const isLong = isEnded(chip.status) && chip.status !== "completed";
  return (
    <span aria-live="polite" className={cx("block text-xs text-faint", isLong ? "line-clamp-4" : "truncate")}>
      {chip.agent && <span>{chip.agent} · </span>}
      <span className={TONE_TEXT[isLeft ? "amber" : look.tone]}>{word}</span>
      {chip.line && chip.waits === null && !isLeft && <span> · {chip.line}</span>}
    </span>
  );
}

function Asking({ chip, question, said, onAnswer }: { chip: Chip; question: Asked; said: string; onAnswer?: (answer: Answer) => Promise<unknown> }) {
  const reply = useTaskAction(chip.id, "reply");
  const send = onAnswer ?? ((answer: Answer) => reply.mutateAsync(answer));
  return (
    <div className="flex flex-col gap-3 border-t border-amber-line bg-amber-tint px-3 py-3">
      {question.text && !said.includes(question.text) && <Markdown text={question.text} />}
      <QuestionForm
        key={question.id ?? question.text}
        schema={question.schema}
        isApproval={chip.waits === "approve"}
        isBusy={reply.isPending}
        onAnswer={(answer) => send({ ...answer, question: question.id })}
      />
    </div>
  );
}

/** A planned task begins when somebody says so; the button lies over the end of the chip. */
function Execute({ id, title }: { id: string; title: string }) {
  const execute = useTaskAction(id, "execute");
  return (
    <Button
      kind="primary"
      size="small"
      aria-label={`Execute ${title}`}
      className="absolute right-3"
      icon={<Play className="size-3.5" />}
      busy={execute.isPending}
      onClick={() => execute.mutate({})}
    >
      Execute
    </Button>
  );
}

/** What an agent that answers right here is doing, below what it has said so far. */
export function WorkingLine({ data, onOpen }: { data: TaskData; onOpen: (taskId: string) => void }) {
  const chip = chipOf(data, useTaskRow(data.taskId));
  const isLeft = useWaitsToResume(chip.status);
  const since = chip.createdAt;
  const isSlow = useTicking((now) => (since && now - new Date(since).getTime() > 2000 ? 1 : 0)) === 1;
  return (
    <button type="button" onClick={() => onOpen(chip.id)} className="-mx-1.5 flex max-w-full items-center gap-2 self-start rounded px-1.5 py-0.5 text-left text-xs text-faint hover:bg-hover hover:text-soft">
      <StateDot state={chip.status} />
      <span aria-live="polite" className="min-w-0 truncate">
        {isLeft ? WAITS_TO_RESUME : (chip.line ?? stateLook(chip.status).word)}
      </span>
      {since && isSlow && <Duration start={since} end={chip.endedAt} className="shrink-0" />}
    </button>
  );
}
