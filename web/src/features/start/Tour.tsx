import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Play, RotateCcw } from "lucide-react";
import { useState } from "react";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import type { TaskView } from "@/api/types";
import { ArtifactContent } from "@/features/chat/BlockView";
import { TaskChip } from "@/features/chat/TaskChip";
import { useTaskView } from "@/features/chat/taskRows";
import { artifactsOf } from "@/features/tasks/a2a";
import { useTopic } from "@/live/live";
import { Button, isEnded, toast } from "@/ui";
import type { Tour as TourOf } from "./tour";

/** One button that sends a task, which then works, asks and finishes right below it. */
export function Tour({ tour }: { tour: TourOf }) {
  const client = useQueryClient();
  const [taskId, setTaskId] = useState<string | null>(null);
  const send = useMutation({
    mutationFn: () => api.post<TaskView>("/api/tasks", { agent: tour.agent.slug, text: tour.text }),
    onSuccess: (view) => {
      client.setQueryData(keys.task(view.id), view);
      setTaskId(view.id);
    },
    onError: (error) => toast(error.message, "error"),
  });
  return (
    <section aria-label={`Try ${tour.agent.name}`} className="flex flex-col gap-3">
      <div className="flex flex-wrap items-center gap-3">
        <div className="min-w-0 flex-1 basis-60">
          <h2 className="font-semibold">Try {tour.agent.name}</h2>
          <p className="text-sm text-soft">
            Sends <q>{tour.text}</q> to {tour.agent.name}. Its progress, its questions and its result appear here.
          </p>
        </div>
        <Button kind={taskId ? "secondary" : "primary"} icon={taskId ? <RotateCcw className="size-3.5" /> : <Play className="size-3.5" />} busy={send.isPending} onClick={() => send.mutate()}>
          {taskId ? "Send another" : "Send a task"}
        </Button>
      </div>
      {taskId && <Watched key={taskId} taskId={taskId} />}
    </section>
  );
}

function Watched({ taskId }: { taskId: string }) {
  const navigate = useNavigate();
  useTopic(`task:${taskId}`);
  const view = useTaskView(taskId, true).data;
  const artifacts = view ? artifactsOf(view.task) : [];
  return (
    <div className="flex animate-enter flex-col gap-3">
      <TaskChip data={{ taskId }} isOpen={false} onOpen={() => void navigate({ to: "/tasks/$taskId", params: { taskId } })} />
      {artifacts.map((artifact) => (
        <ArtifactContent key={artifact.id} artifact={artifact} isGrowing={view !== undefined && !isEnded(view.status)} />
      ))}
    </div>
  );
}
