import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { TaskPanel } from "./TaskPanel";

/** The selected task, beside the list or on the whole page. */
export default function TaskDetail() {
  const { taskId } = useParams({ from: "/console/tasks/$taskId" });
  const { full } = useSearch({ from: "/console/tasks" });
  const navigate = useNavigate({ from: "/tasks/$taskId" });
  return (
    <TaskPanel
      // What one began to type for a task stays with it.
      key={taskId}
      taskId={taskId}
      isFull={full}
      onFull={(next) => void navigate({ to: "/tasks/$taskId", params: { taskId }, search: (kept) => ({ ...kept, full: next || undefined }) })}
      onClose={() => void navigate({ to: "/tasks", search: (kept) => ({ ...kept, full: undefined }) })}
    />
  );
}
