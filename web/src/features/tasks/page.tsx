import { Outlet, useMatchRoute, useNavigate, useSearch } from "@tanstack/react-router";
import { ListChecks } from "lucide-react";
import { useCallback, useMemo } from "react";
import { pageUrl, type Query } from "@/api/client";
import { useServerUrl } from "@/api/session";
import type { TaskRow } from "@/api/types";
import { Button, Duration, EmptyState, ErrorState, isEnded, Page, serverNow, SkeletonRows, StateBadge, StateDot, Table, Time, type Column } from "@/ui";
import { TaskFilters } from "./TaskFilters";
import { titleOf } from "./title";
import { useTasks } from "./queries";
import type { Since, TasksSearch } from "./search";

const SINCE_MS: Record<Since, number> = { "1h": 3_600_000, "24h": 86_400_000, "7d": 604_800_000, "30d": 2_592_000_000 };

/** The address's filters as the API takes them. The beginning is fixed when it is chosen, or every render would ask anew. */
function useFilters(search: TasksSearch): Query {
  const { state, agent, since, q, contextId, top } = search;
  const states = state?.join(",");
  return useMemo(
    () => ({
      state: states?.split(","),
      agent,
      since: since && new Date(serverNow() - SINCE_MS[since]).toISOString(),
      q,
      contextId,
      top: top && 1,
    }),
    [states, agent, since, q, contextId, top],
  );
}

const COLUMNS: readonly Column<TaskRow>[] = [
  { id: "dot", header: "", width: "16px", until: 520, cell: (row) => <StateDot state={row.status} className="align-middle" /> },
  { id: "state", header: "State", width: "124px", from: 520, cell: (row) => <StateBadge state={row.status} plain /> },
  { id: "title", header: "Task", isName: true, width: "minmax(0, 1fr)", cell: (row) => <TaskTitle row={row} /> },
  { id: "agent", header: "Agent", width: "132px", from: 760, cell: (row) => <span className="text-soft">{row.agent}</span> },
  {
    id: "elapsed",
    header: "Elapsed",
    width: "76px",
    align: "right",
    from: 620,
    cell: (row) => <Duration start={row.createdAt} end={isEnded(row.status) ? row.updatedAt : null} className="text-soft" />,
  },
  { id: "updated", header: "Updated", width: "64px", align: "right", cell: (row) => <Time at={row.updatedAt} className="text-faint" /> },
];

function TaskTitle({ row }: { row: TaskRow }) {
  return (
    <span className="flex min-w-0 items-baseline gap-2">
      <span className="min-w-0 shrink-0 truncate max-w-full">{titleOf(row) ?? <span className="font-mono text-mono text-soft">{row.id}</span>}</span>
      {row.statusMessage && <span className="min-w-0 truncate text-xs text-faint">{row.statusMessage}</span>}
    </span>
  );
}

/** The server counts no further than this. */
const MOST_COUNTED = 1000;

function countOf(total: number): string {
  if (total >= MOST_COUNTED) return `${MOST_COUNTED.toLocaleString()}+ tasks`;
  return total === 1 ? "1 task" : `${total} tasks`;
}

function Nothing({ filtered, onClear }: { filtered: boolean; onClear: () => void }) {
  const server = useServerUrl();
  if (filtered) {
    return (
      <EmptyState icon={ListChecks} title="No task matches" action={<Button onClick={onClear}>Show all tasks</Button>}>
        Tasks that match will appear here as they come.
      </EmptyState>
    );
  }
  return (
    <EmptyState icon={ListChecks} title="No tasks yet" command={`accord send ${server} "hello"`}>
      A task is one piece of work of an agent. Send one from a terminal, or talk to an agent in the chat.
    </EmptyState>
  );
}

export default function TasksPage() {
  const search = useSearch({ from: "/console/tasks" });
  const navigate = useNavigate({ from: "/tasks" });
  const match = useMatchRoute()({ to: "/tasks/$taskId" });
  const selected = match ? match.taskId : null;
  const filters = useFilters(search);
  const tasks = useTasks(filters);
  const rows = useMemo(() => tasks.data?.pages.flatMap((page) => page.items) ?? [], [tasks.data]);
  const total = tasks.data?.pages[0]?.total;
  const filtered = Object.values(filters).some((value) => value !== undefined);

  const { hasNextPage, isFetchingNextPage, fetchNextPage } = tasks;
  const loadMore = useCallback(() => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [hasNextPage, isFetchingNextPage, fetchNextPage]);

  if (selected && search.full) return <Outlet />;
  return (
    <Page
      title="Tasks"
      fill
      toolbar={<TaskFilters search={search} onChange={(change) => void navigate({ search: (kept) => ({ ...kept, ...change }), replace: true })} />}
      count={total === undefined ? undefined : countOf(total)}
      panel={<Outlet />}
    >
      {tasks.isPending ? (
        <SkeletonRows rows={14} label="Loading the tasks" />
      ) : tasks.isError && rows.length === 0 ? (
        <ErrorState title="The tasks could not be loaded" error={tasks.error} safe="Nothing is lost: tasks are stored on the server." onRetry={() => void tasks.refetch()} />
      ) : rows.length === 0 ? (
        <Nothing filtered={filtered} onClear={() => void navigate({ search: {} })} />
      ) : (
        <Table
          // A new question is a new list: it begins at its top.
          key={JSON.stringify(filters)}
          label="Tasks"
          rows={rows}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          selected={selected}
          onOpen={(row) => void navigate({ to: "/tasks/$taskId", params: { taskId: row.id }, search: (kept) => kept })}
          href={(row) => pageUrl(`/tasks/${encodeURIComponent(row.id)}`)}
          still
          onEnd={loadMore}
          footer={isFetchingNextPage ? <SkeletonRows rows={3} label="Loading older tasks" /> : undefined}
        />
      )}
    </Page>
  );
}
