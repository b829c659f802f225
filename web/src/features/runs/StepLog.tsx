import { useEffect, useRef, useState } from "react";
import type { StepView } from "@/api/types";
import { useTaskEvents } from "@/features/tasks/queries";
import { useTopic } from "@/live/live";
import { cx, formatExact, formatTime, Section, toMs } from "@/ui";
import { linesAbout, linesOf, type LogLine } from "./log";

const MOST_LINES = 500;
const NEAR_PX = 24;

/** What was said while a step was done: by the task that does it, else by the run about it. */
export function StepLog({ runId, step }: { runId: string; step: StepView }) {
  return step.child ? <ChildLog key={step.child} taskId={step.child} /> : <OwnLog runId={runId} step={step.name} />;
}

function ChildLog({ taskId }: { taskId: string }) {
  useTopic(`task:${taskId}`);
  const log = useTaskEvents(taskId);
  return <Lines lines={linesOf(log.data?.items ?? [])} />;
}

function OwnLog({ runId, step }: { runId: string; step: string }) {
  const log = useTaskEvents(runId);
  return <Lines lines={linesAbout(log.data?.items ?? [], step)} />;
}

function Lines({ lines }: { lines: readonly LogLine[] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  // After every render: cheap, and lines grow as well as come.
  useEffect(() => {
    const node = scroller.current;
    if (node && isAtEnd.current) node.scrollTop = node.scrollHeight;
  });
  const [showsAll, setShowsAll] = useState(false);
  if (lines.length === 0) return null;
  const earlier = showsAll ? 0 : Math.max(0, lines.length - MOST_LINES);
  return (
    <Section title="Log">
      <div
        ref={scroller}
        role="log"
        aria-label="Log of the step"
        tabIndex={0}
        onScroll={(event) => {
          const node = event.currentTarget;
          isAtEnd.current = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR_PX;
        }}
        className="max-h-72 overflow-y-auto rounded-md border border-line bg-sunken px-3 py-2 font-mono text-mono"
      >
        {earlier > 0 && (
          <button type="button" className="link" onClick={() => setShowsAll(true)}>
            {earlier} earlier {earlier === 1 ? "line" : "lines"}
          </button>
        )}
        {lines.slice(earlier).map((line, index) => (
          // Several lines may come from one event; they are only ever added at the end.
          <div key={earlier + index} className="flex min-h-5 gap-3">
            <time dateTime={line.at} title={formatExact(toMs(line.at))} className="shrink-0 text-faint select-none">
              {formatTime(toMs(line.at))}
            </time>
            <span className={cx("min-w-0 break-words whitespace-pre-wrap", line.tone === "red" && "text-red", line.tone === "faint" && "text-soft")}>{line.text}</span>
          </div>
        ))}
      </div>
    </Section>
  );
}
