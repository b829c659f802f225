import type { TaskView } from "@/api/types";
import { CodeBlock, cx } from "@/ui";
import { useTask } from "../queries";

/** The exception that failed a task. The server sends it to its operators only: for others there is nothing here. */
export function Trace({ failure, className }: { failure: TaskView["failure"] | undefined; className?: string }) {
  if (!failure) return null;
  return (
    <div className={cx("flex flex-col gap-2 text-sm", className)}>
      <p className="font-mono text-mono break-words whitespace-pre-wrap text-red">{failure.exception}</p>
      <details className="group/trace">
        <summary className="w-max rounded text-xs text-faint hover:text-soft">Traceback</summary>
        <CodeBlock label="Traceback" code={failure.traceback.trimEnd()} className="mt-2" />
      </details>
    </div>
  );
}

/** The same for a task of which only the id is known. */
export function TraceOf({ taskId, className }: { taskId: string; className?: string }) {
  return <Trace failure={useTask(taskId).data?.failure} className={className} />;
}
