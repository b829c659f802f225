import { Ban, Play, RotateCcw } from "lucide-react";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { pageUrl } from "@/api/client";
import { useServerUrl, useSession } from "@/api/session";
import type { TaskView } from "@/api/types";
import { usePaletteAction } from "@/app/actions";
import { Button, ConfirmDialog, CopyMenu, Field, IconButton, Input, toast, useShortcut } from "@/ui";
import { curlForTask, pythonForTask } from "../calls";
import { useTaskAction } from "../queries";
import { useKeptSearch } from "../useKeptSearch";

/** What can be done with a task right now, as the server says it, and ways to take it elsewhere. */
export function TaskActions({ task }: { task: TaskView }) {
  const navigate = useNavigate();
  const kept = useKeptSearch();
  const [confirming, setConfirming] = useState(false);
  const execute = useTaskAction(task.id, "execute");
  const retry = useTaskAction(task.id, "retry");
  const may = (action: TaskView["actions"][number]) => task.actions.includes(action);

  function again() {
    retry.mutate(
      {},
      {
        onSuccess: (view) => {
          toast("Sent again as a new task");
          void navigate({ to: "/tasks/$taskId", params: { taskId: view.id }, search: kept });
        },
      },
    );
  }

  usePaletteAction({ id: "task-cancel", label: "Cancel this task", group: "This task" }, () => setConfirming(true), may("cancel"));
  usePaletteAction({ id: "task-retry", label: "Send this task again", group: "This task", keywords: "retry" }, again, may("retry"));
  usePaletteAction({ id: "task-execute", label: "Execute this task", group: "This task" }, () => execute.mutate({}), may("execute"));
  useShortcut({ keys: "e", label: "Execute", group: "Task" }, () => execute.mutate({}), may("execute"));

  return (
    <>
      {may("execute") && (
        <Button kind="primary" size="small" icon={<Play className="size-3.5" />} busy={execute.isPending} onClick={() => execute.mutate({})}>
          Execute
        </Button>
      )}
      {may("retry") && (
        <IconButton label="Send again as a new task" disabled={retry.isPending} onClick={again}>
          <RotateCcw />
        </IconButton>
      )}
      {may("cancel") && (
        <IconButton label="Cancel the task" onClick={() => setConfirming(true)}>
          <Ban />
        </IconButton>
      )}
      <TaskCopies task={task} />
      <CancelDialog task={task} open={confirming} onClose={() => setConfirming(false)} />
    </>
  );
}

function TaskCopies({ task }: { task: TaskView }) {
  const session = useSession();
  const server = useServerUrl();
  const isOpen = session.data?.isOpen ?? true;
  return (
    <CopyMenu
      id={task.id}
      path={pageUrl(`/tasks/${encodeURIComponent(task.id)}`)}
      curl={curlForTask(server, task.slug, task.id, isOpen)}
      python={pythonForTask(server, task.slug, task.id, isOpen)}
    />
  );
}

function CancelDialog({ task, open, onClose }: { task: TaskView; open: boolean; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const cancel = useTaskAction(task.id, "cancel");
  return (
    <ConfirmDialog
      title="Cancel this task?"
      action="Cancel the task"
      open={open}
      busy={cancel.isPending}
      onClose={onClose}
      onConfirm={() => cancel.mutate(reason ? { reason } : {}, { onSettled: onClose })}
    >
      <p className="mb-3">The agent is told to stop. What it has made so far stays, and it can be sent again.</p>
      <Field label="Reason" hint="Kept with the task; may be left empty">
        <Input value={reason} onChange={(event) => setReason(event.target.value)} />
      </Field>
    </ConfirmDialog>
  );
}
