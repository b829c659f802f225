import { Maximize2, Minimize2 } from "lucide-react";
import { ApiError } from "@/api/client";
import { useTopic } from "@/live/live";
import { EmptyState, ErrorState, IconButton, Panel, SkeletonPanel, StateDot } from "@/ui";
import { TaskActions } from "./canvas/TaskActions";
import { TaskCanvas } from "./canvas/TaskCanvas";
import { useTask } from "./queries";
import { titleOf } from "./title";

interface TaskPanelProps {
  taskId: string;
  onClose: () => void;
  /** Without it the panel cannot become a page, as inside the chat. */
  onFull?: (full: boolean) => void;
  isFull?: boolean;
}

/** A task, live, in the panel on the right of any page (tasks, chat, runs), or as a page of its own. */
export function TaskPanel({ taskId, onClose, onFull, isFull }: TaskPanelProps) {
  useTopic(`task:${taskId}`);
  const task = useTask(taskId);
  const actions = (
    <>
      {task.data && <TaskActions task={task.data} />}
      {onFull && (
        <IconButton label={isFull ? "Show beside the list" : "Show on the whole page"} className="max-rail:hidden" onClick={() => onFull(!isFull)}>
          {isFull ? <Minimize2 /> : <Maximize2 />}
        </IconButton>
      )}
    </>
  );
  const title = task.data && (
    <span className="flex min-w-0 items-center gap-2">
      <StateDot state={task.data.status} />
      <span className="truncate" title={titleOf(task.data) ?? task.data.id}>{titleOf(task.data) ?? task.data.id}</span>
    </span>
  );
  return (
    <Panel label="Task" title={title} actions={actions} onClose={onClose} isFull={isFull}>
      {task.data ? (
        <TaskCanvas task={task.data} />
      ) : task.error instanceof ApiError && task.error.status === 404 ? (
        <EmptyState title="There is no such task">It may have been removed, or it belongs to somebody else.</EmptyState>
      ) : task.isError ? (
        <ErrorState title="The task could not be loaded" error={task.error} safe="Nothing is lost: it is stored on the server." onRetry={() => void task.refetch()} />
      ) : (
        <SkeletonPanel />
      )}
    </Panel>
  );
}
