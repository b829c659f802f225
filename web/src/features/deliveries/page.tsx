import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Outlet, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { RotateCw, Webhook } from "lucide-react";
import { useState } from "react";
import { api, pageUrl } from "@/api/client";
import { keys } from "@/api/keys";
import type { DeliveryPage, DeliveryRow } from "@/api/types";
import { Button, ConfirmDialog, EmptyState, ErrorState, Page, SearchInput, Select, SkeletonRows, Table, Time, toast, type Column } from "@/ui";
import { DeliveryBadge, DeliveryMark, stateWord, StatusCode } from "./look";
import { DELIVERY_STATES, type DeliveriesSearch } from "./search";

const COLUMNS: readonly Column<DeliveryRow>[] = [
  { id: "mark", header: "", width: "16px", until: 520, cell: (row) => <DeliveryMark state={row.state} /> },
  { id: "state", header: "State", width: "96px", from: 520, cell: (row) => <DeliveryBadge state={row.state} /> },
  { id: "url", header: "Webhook", isName: true, width: "minmax(140px, 2fr)", cell: (row) => <code title={row.url}>{row.url}</code> },
  { id: "agent", header: "Agent", width: "minmax(80px, 1fr)", cell: (row) => row.agent, from: 720 },
  { id: "code", header: "Answer", width: "80px", cell: (row) => (row.lastAt === null ? <span className="text-faint">not yet</span> : <StatusCode status={row.lastStatus} />), from: 480 },
  { id: "attempt", header: "Attempt", width: "80px", cell: (row) => (row.attempts > 0 ? `${row.attempts} of ${row.maxAttempts}` : ""), from: 620 },
  { id: "next", header: "Next try", width: "90px", cell: (row) => row.nextAt && <Time at={row.nextAt} />, from: 820 },
  { id: "last", header: "Last", width: "70px", align: "right", cell: (row) => row.lastAt && <Time at={row.lastAt} className="text-faint" /> },
];

const STATES = [{ value: "", label: "All states" }, ...DELIVERY_STATES.map((state) => ({ value: state, label: stateWord(state) }))];

export default function DeliveriesPage() {
  const search = useSearch({ from: "/console/deliveries" });
  const navigate = useNavigate();
  const { taskId, pushId } = useParams({ strict: false });
  const filters = { state: search.state, url: search.url, task: search.task };
  const list = useInfiniteQuery({
    queryKey: keys.deliveries(filters),
    queryFn: ({ pageParam, signal }) => api.get<DeliveryPage>("/api/deliveries", { ...filters, page: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
  });
  const rows = list.data?.pages.flatMap((page) => page.items) ?? [];
  const narrow = (change: DeliveriesSearch) => void navigate({ to: "/deliveries", search: { ...search, ...change }, replace: true });
  const count = list.data && `${rows.length}${list.hasNextPage ? "+" : ""} ${rows.length === 1 ? "webhook" : "webhooks"}`;
  return (
    <Page
      title="Deliveries"
      fill
      count={count}
      panel={<Outlet />}
      actions={<RedeliverAll />}
      toolbar={
        <>
          <Select aria-label="State" value={search.state ?? ""} options={STATES} onChange={(state) => narrow({ state: DELIVERY_STATES.find((known) => known === state) })} />
          <SearchInput label="Find by address" className="w-64 max-phone:w-auto max-phone:min-w-0 max-phone:flex-1" value={search.url ?? ""} onChange={(event) => narrow({ url: event.target.value || undefined })} />
          {search.task && (
            <Button size="small" onClick={() => narrow({ task: undefined })}>
              Task {search.task.slice(0, 8)}: show all
            </Button>
          )}
        </>
      }
    >
      {list.isPending ? (
        <SkeletonRows label="Loading deliveries" />
      ) : list.isError ? (
        <ErrorState title="The deliveries could not be loaded" error={list.error} safe="Nothing is lost: deliveries are stored on the server." onRetry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <Nothing isFiltered={Boolean(search.state || search.url || search.task)} />
      ) : (
        <Table
          label="Deliveries"
          rows={rows}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          selected={taskId && pushId ? `${taskId}/${pushId}` : null}
          still
          href={(row) => pageUrl(`/deliveries/${encodeURIComponent(row.taskId)}/${encodeURIComponent(row.pushId)}`)}
          onOpen={(row) => void navigate({ to: "/deliveries/$taskId/$pushId", params: { taskId: row.taskId, pushId: row.pushId }, search })}
          onEnd={() => list.hasNextPage && !list.isFetchingNextPage && void list.fetchNextPage()}
        />
      )}
    </Page>
  );
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <EmptyState icon={Webhook} title="No webhook fits these filters" />;
  return (
    <EmptyState icon={Webhook} title="No webhooks yet" command="accord task push set AGENT TASK https://example.com/hook">
      A caller sets a webhook for a task; every change of the task is then posted there, in order, until it arrives.
    </EmptyState>
  );
}

/** Everything that was given up, tried once more. */
function RedeliverAll() {
  const [asks, setAsks] = useState(false);
  const client = useQueryClient();
  const again = useMutation({
    mutationFn: () => api.post<{ count: number }>("/api/deliveries/redeliver", { allDead: true }),
    onSuccess: ({ count }) => {
      toast(count === 0 ? "Nothing was given up" : `${count} tried again`);
      void client.invalidateQueries({ queryKey: ["deliveries"] });
    },
    onError: (error) => toast(error.message, "error"),
    onSettled: () => setAsks(false),
  });
  return (
    <>
      <Button icon={<RotateCw className="size-3.5" aria-hidden />} onClick={() => setAsks(true)}>
        Redeliver given up
      </Button>
      <ConfirmDialog title="Redeliver all that was given up?" open={asks} action="Redeliver" kind="primary" busy={again.isPending} onConfirm={() => again.mutate()} onClose={() => setAsks(false)}>
        Each webhook gets what it has missed, from the first event that it did not take.
      </ConfirmDialog>
    </>
  );
}
