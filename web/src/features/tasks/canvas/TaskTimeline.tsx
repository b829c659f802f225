import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { Section, SkeletonText, Waterfall } from "@/ui";
import { useTaskTimeline } from "../queries";
import { useKeptSearch } from "../useKeptSearch";
import { rowsOf } from "./lanes";

/** Runs, attempts, waits, child tasks and deliveries on one time axis, also while they go on. */
export function TaskTimeline({ taskId }: { taskId: string }) {
  const timeline = useTaskTimeline(taskId);
  const navigate = useNavigate();
  const kept = useKeptSearch();
  const rows = useMemo(() => rowsOf(timeline.data?.lanes ?? []), [timeline.data]);

  function open(id: string) {
    const lane = timeline.data?.lanes.find((candidate) => candidate.id === id);
    if (lane?.taskId && lane.taskId !== taskId) void navigate({ to: "/tasks/$taskId", params: { taskId: lane.taskId }, search: kept });
  }

  return (
    <Section title="Timeline">
      {timeline.isPending ? (
        <SkeletonText lines={3} label="Loading the timeline" />
      ) : timeline.isError ? (
        <p className="text-sm text-red">The timeline could not be loaded: {timeline.error.message}</p>
      ) : rows.length === 0 ? (
        <p className="text-sm text-faint">Nothing has begun yet.</p>
      ) : (
        <Waterfall label="Timeline of the task" rows={rows} onSelect={open} />
      )}
    </Section>
  );
}
