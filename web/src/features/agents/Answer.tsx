import { Link } from "@tanstack/react-router";
import { ChevronRight, SquareTerminal } from "lucide-react";
import { useState } from "react";
import { Button, CodeBlock, cx, EmptyState, formatDuration, formatExact, JsonView, Notice, Skeleton, Tabs, toMs } from "@/ui";
import { gist, parsed, type End, type Frame, type Happened } from "./happened";
import type { InspectSearch } from "./search";

interface AnswerProps {
  happened: Happened;
  problem: string | null;
  isBusy: boolean;
  task?: string;
  onGo: (to: InspectSearch) => void;
}

/** What came back: status and time, then the body or the frames in their order, and the headers. */
export function Answer({ happened, problem, isBusy, task, onGo }: AnswerProps) {
  const [tab, setTab] = useState("content");
  const { head, end, frames, body } = happened;
  const why = problem ?? end?.problem ?? null;
  if (!head && !why && !isBusy) {
    return (
      <EmptyState icon={SquareTerminal} title="Nothing was sent yet">
        The answer appears here as it comes: the body, or each event of a stream with the time since the one before.
      </EmptyState>
    );
  }
  const isStream = frames.length > 0 || (head?.headers.some(([name, value]) => name === "content-type" && value.startsWith("text/event-stream")) ?? false);
  return (
    <div className="flex flex-col gap-4">
      {why && <Notice tone="red">{why}</Notice>}
      {head && (
        <div className="flex min-h-8 flex-wrap items-center gap-x-3 gap-y-1 text-sm" role="status">
          <code className={cx("font-semibold", head.status < 400 ? "text-green" : "text-red")}>{head.status}</code>
          <span className="text-faint">
            {head.elapsedMs} ms to the head{end && `, ${formatDuration(end.elapsedMs)} in all, ${sizeOf(end.bytes)}`}
          </span>
          {isBusy && <span className="animate-pulse-slow text-blue">receiving</span>}
          <span className="flex-1" />
          {task && <About task={task} onGo={onGo} />}
        </div>
      )}
      {end?.truncated && <Notice tone="amber">{CUT[end.truncated]}</Notice>}
      {head ? (
        <Tabs
          label="Answer"
          selected={tab}
          onSelect={setTab}
          tabs={[
            isStream
              ? { id: "content", label: "Frames", count: frames.length, content: <Frames frames={frames} /> }
              : { id: "content", label: "Body", content: <Body text={body} isBusy={isBusy} /> },
            { id: "headers", label: "Headers", count: head.headers.length, content: <CodeBlock wrap label="Headers" code={head.headers.map(([name, value]) => `${name}: ${value}`).join("\n")} /> },
          ]}
        />
      ) : (
        isBusy && <Waiting />
      )}
    </div>
  );
}

const CUT: Record<NonNullable<End["truncated"]>, string> = {
  size: "Only the first megabyte is shown.",
  frames: "Only the first thousand frames are shown.",
  time: "The inspector looked on for a minute and left; the task goes on.",
};

function sizeOf(bytes: number): string {
  return bytes < 1024 ? `${bytes} B` : `${(bytes / 1024).toFixed(1)} kB`;
}

function Waiting() {
  return (
    <div role="status" aria-label="Waiting for the answer" className="flex flex-col gap-3">
      <Skeleton className="h-4 w-40" />
      <Skeleton className="h-32 w-full" />
    </div>
  );
}

/** What can be done next with the task that an answer named. */
function About({ task, onGo }: { task: string; onGo: (to: InspectSearch) => void }) {
  return (
    <span className="flex flex-wrap items-center gap-1">
      <Link to="/tasks/$taskId" params={{ taskId: task }} className="link text-sm">
        Open the task
      </Link>
      <Button size="small" kind="ghost" onClick={() => onGo({ operation: "GetTask" })}>
        Read it
      </Button>
      <Button size="small" kind="ghost" onClick={() => onGo({ operation: "SubscribeToTask" })}>
        Follow it
      </Button>
    </span>
  );
}

function Body({ text, isBusy }: { text: string | null; isBusy: boolean }) {
  if (text === null) return isBusy ? <Waiting /> : <p className="text-sm text-faint">The answer has no body.</p>;
  const value = parsed(text);
  return value === undefined ? <CodeBlock wrap label="Body" code={text} /> : <JsonView value={value} openTo={4} />;
}

function Frames({ frames }: { frames: readonly Frame[] }) {
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  if (frames.length === 0) return <p className="text-sm text-faint">No frame has come yet.</p>;
  function toggle(n: number) {
    const next = new Set(open);
    if (!next.delete(n)) next.add(n);
    setOpen(next);
  }
  return (
    <ol className="overflow-hidden rounded-md border border-line">
      {frames.map((frame) => (
        <li key={frame.n} className="border-b border-line last:border-b-0">
          <FrameLine frame={frame} isOpen={open.has(frame.n)} onToggle={() => toggle(frame.n)} />
          {open.has(frame.n) && <FrameBody frame={frame} />}
        </li>
      ))}
    </ol>
  );
}

function FrameLine({ frame, isOpen, onToggle }: { frame: Frame; isOpen: boolean; onToggle: () => void }) {
  return (
    <button type="button" aria-expanded={isOpen} onClick={onToggle} className="flex h-8 w-full items-center gap-2 px-2 text-left text-sm -outline-offset-2 hover:bg-hover">
      <ChevronRight className={cx("size-3.5 shrink-0 text-faint transition-transform duration-[120ms]", isOpen && "rotate-90")} aria-hidden />
      <span className="w-8 shrink-0 text-right text-xs text-faint">{frame.n}</span>
      <span className="w-16 shrink-0 text-right text-xs text-faint" title={frame.at ? formatExact(toMs(frame.at)) : undefined}>
        +{formatDuration(frame.gapMs)}
      </span>
      {frame.event && <code className="shrink-0 text-soft">{frame.event}</code>}
      <code className="min-w-0 flex-1 truncate">{gist(frame.data)}</code>
      {frame.id && <span className="shrink-0 text-xs text-faint max-phone:hidden">id {frame.id}</span>}
    </button>
  );
}

function FrameBody({ frame }: { frame: Frame }) {
  const value = parsed(frame.data);
  return <div className="border-t border-line p-2">{value === undefined ? <CodeBlock wrap code={frame.data} /> : <JsonView value={value} openTo={5} />}</div>;
}
