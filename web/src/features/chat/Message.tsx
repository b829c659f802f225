import { ArrowRight, RotateCcw } from "lucide-react";
import { memo } from "react";
import { Button, CopyButton, cx, Duration, IconButton, isEnded, Markdown } from "@/ui";
import { blocksOf, plainText, type Block } from "./blocks";
import { BlockView, Fields, FileBlock } from "./BlockView";
import type { ChatMessage, TaskData } from "./message";
import { useTaskRow } from "./taskRows";
import type { Answer } from "./QuestionForm";
import { TaskChip, WorkingLine } from "./TaskChip";
import { askedThen, chipOf } from "./tasks";

export interface MessageActions {
  openTask: string | undefined;
  onOpenTask: (taskId: string) => void;
  onAnswer: (answer: Answer) => Promise<unknown>;
  /** Answers the last message again; absent where that is a reply to a question, which no new task asks. */
  onRegenerate?: () => void;
}

interface MessageProps {
  message: ChatMessage;
  agent: string;
  isLast: boolean;
  /** It is being said right now. */
  isComing: boolean;
  actions: MessageActions;
}

/** One message, of the person or of an agent. */
export const Message = memo(function Message(props: MessageProps) {
  return props.message.role === "user" ? <Own message={props.message} /> : <Theirs {...props} />;
});

function Own({ message }: { message: ChatMessage }) {
  const blocks = blocksOf(message);
  const files = blocks.filter((block) => block.kind === "file");
  const said = blocks.filter((block) => block.kind !== "file");
  return (
    <article aria-label="You" className="group flex flex-col items-end gap-2">
      {files.length > 0 && (
        <div className="flex max-w-[85%] flex-wrap justify-end gap-2">
          {files.map((block) => (
            <FileBlock key={block.key} block={block} />
          ))}
        </div>
      )}
      {said.length > 0 && (
        <div className="max-w-[85%] rounded-lg bg-hover px-3.5 py-2 break-words">
          {said.map((block) => (block.kind === "text" ? <p key={block.key} className="whitespace-pre-wrap">{block.text}</p> : block.kind === "reply" ? <Fields key={block.key} fields={block.fields} /> : null))}
        </div>
      )}
    </article>
  );
}

function Theirs({ message, agent, isLast, isComing, actions }: MessageProps) {
  const blocks = blocksOf(message);
  const ownTask = message.metadata?.mode === "task" ? undefined : message.metadata?.taskId;
  const own = blocks.find((block) => block.kind === "task" && block.taskId === ownTask);
  const ownData = own?.kind === "task" ? own.data : undefined;
  return (
    <article aria-label={agent} aria-busy={isComing} className="group flex flex-col gap-3">
      {ordered(blocks, message.metadata?.taskId).map((block) =>
        block === own && ownData ? (
          <OwnTask key={block.key} data={ownData} said={plainText(message)} isLast={isLast} isComing={isComing} actions={actions} />
        ) : (
          <BlockView
            key={block.key}
            block={block}
            isComing={isComing}
            openTask={actions.openTask}
            onOpenTask={actions.onOpenTask}
            resultOf={message.metadata?.mode === "task" ? message.metadata.taskId : undefined}
          />
        ),
      )}
      {isComing && ownData && <WorkingLine data={ownData} onOpen={actions.onOpenTask} />}
      {isComing && !ownData && <Waiting />}
      {!isComing && <Foot message={message} task={ownData} isLast={isLast} actions={actions} />}
    </article>
  );
}

/** The task of an answer comes after what it has said; so do one that was taken on, and what came of it. */
function ordered(blocks: readonly Block[], taskId: string | undefined): readonly Block[] {
  const isTask = (block: Block) => block.kind === "task" && block.taskId === taskId;
  return [...blocks.filter((block) => !isTask(block)), ...blocks.filter(isTask)];
}

interface OwnTaskProps {
  data: TaskData;
  /** What the message says already: a question that is part of it is not asked twice. */
  said: string;
  isLast: boolean;
  isComing: boolean;
  actions: MessageActions;
}

/** The task of an answer that is given here: it shows itself only if it wants something or went wrong. */
function OwnTask({ data, said, isLast, isComing, actions }: OwnTaskProps) {
  const chip = chipOf(data, useTaskRow(data.taskId));
  if (isComing) return null;
  const wentWrong = isEnded(chip.status) && chip.status !== "completed";
  const goesOn = !isEnded(chip.status);
  // A question stays answerable after the conversation went on with another agent; its answer then goes to the task alone.
  if ((isLast && (goesOn || wentWrong)) || chip.question) {
    return <TaskChip data={data} said={said} isOpen={actions.openTask === data.taskId} onOpen={actions.onOpenTask} onAnswer={isLast && chip.waits ? actions.onAnswer : undefined} />;
  }
  const asked = askedThen(data);
  return asked && !said.includes(asked) ? <Markdown text={asked} /> : null;
}

function Foot({ message, task, isLast, actions }: { message: ChatMessage; task: TaskData | undefined; isLast: boolean; actions: MessageActions }) {
  const text = plainText(message);
  return (
    <div className={cx("-mt-1 flex h-6 items-center gap-1 text-xs text-faint", !isLast && "-mb-5 opacity-0 transition-opacity duration-[120ms] group-focus-within:opacity-100 group-hover:opacity-100")}>
      {text && <CopyButton text={text} label="Copy the answer" className="-ml-1" />}
      {isLast && actions.onRegenerate && (
        <IconButton label="Answer again" size="small" onClick={actions.onRegenerate}>
          <RotateCcw />
        </IconButton>
      )}
      {task && <OpenTask data={task} onOpen={actions.onOpenTask} />}
    </div>
  );
}

function OpenTask({ data, onOpen }: { data: TaskData; onOpen: (taskId: string) => void }) {
  const chip = chipOf(data, useTaskRow(data.taskId));
  // Until then, and if it went wrong, its chip is there.
  if (chip.status !== "completed") return null;
  return (
    <button type="button" onClick={() => onOpen(chip.id)} className="ml-1 inline-flex items-center gap-1 rounded px-1 hover:bg-hover hover:text-soft">
      {chip.createdAt && chip.endedAt && <Duration start={chip.createdAt} end={chip.endedAt} />}
      {chip.endedAt && <span aria-hidden>·</span>}
      Open the task
      <ArrowRight className="size-3" aria-hidden />
    </button>
  );
}

function Waiting() {
  return (
    <div role="status" aria-label="Waiting for the agent" className="flex h-5 items-center gap-1">
      {[0, 1, 2].map((at) => (
        <span key={at} className="size-1.5 animate-pulse-slow rounded-full bg-faint" style={{ animationDelay: `${at * 200}ms` }} />
      ))}
    </div>
  );
}

/** An answer that ended without an end: the run may well have gone on. */
export function CutOff({ onContinue }: { onContinue: () => void }) {
  return (
    <div role="status" className="flex flex-wrap items-center gap-3 rounded-md border border-line px-3 py-2 text-sm text-soft">
      <span className="min-w-0 flex-1">This answer was cut off. The agent may have gone on without this page.</span>
      <Button size="small" onClick={onContinue}>
        Continue
      </Button>
    </div>
  );
}
