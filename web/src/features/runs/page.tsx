import { useInfiniteQuery } from "@tanstack/react-query";
import { Outlet, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Network, Play } from "lucide-react";
import { useState } from "react";
import { pageUrl } from "@/api/client";
import type { RunRow } from "@/api/types";
import { usePaletteAction } from "@/app/actions";
import { Button, Duration, EmptyState, ErrorState, isEnded, Page, Select, SkeletonRows, StateBadge, stateLook, Table, TASK_STATES, Time, useShortcut, type Column } from "@/ui";
import { Progress } from "./look";
import { runsQuery, useWorkflows } from "./queries";
import type { RunsSearch } from "./search";
import { StartDialog } from "./StartDialog";

/** What a run waits for, in a few words. */
function waitsFor(run: RunRow): string {
  const [first, ...others] = run.waits;
  if (!first) return "";
  const said = first.kind === "approval" ? `approval of ${first.step}` : first.kind === "event" ? `event ${first.event}` : first.step;
  return others.length > 0 ? `${said} and ${others.length} more` : said;
}

const COLUMNS: readonly Column<RunRow>[] = [
  { id: "state", header: "State", width: "132px", cell: (run) => <StateBadge state={run.status} plain /> },
  { id: "workflow", header: "Workflow", isName: true, width: "minmax(110px, 2fr)", cell: (run) => <span className="font-medium">{run.workflow}</span> },
  { id: "steps", header: "Steps", width: "minmax(96px, 160px)", cell: (run) => <Progress run={run} className="w-full" />, from: 560 },
  { id: "waits", header: "Waits for", width: "minmax(100px, 1.5fr)", cell: (run) => <span className="text-amber">{waitsFor(run)}</span>, from: 860 },
  { id: "id", header: "Run", width: "88px", cell: (run) => <code className="text-faint">{run.id.slice(-8)}</code>, from: 980 },
  {
    id: "took",
    header: "Duration",
    width: "84px",
    align: "right",
    cell: (run) => <Duration start={run.begin} end={isEnded(run.status) ? run.updatedAt : null} className="text-soft" />,
    from: 480,
  },
  { id: "begun", header: "Begun", width: "52px", align: "right", cell: (run) => <Time at={run.begin} className="text-faint" /> },
];

const STATES = [
  { value: "", label: "All states" },
  { value: "submitted,working,input-required,auth-required", label: "Open" },
  ...TASK_STATES.filter((state) => state !== "unknown").map((state) => ({ value: state, label: stateLook(state).word })),
];

export default function RunsPage() {
  const { runId } = useParams({ strict: false });
  return runId ? <Outlet /> : <RunsList />;
}

function RunsList() {
  const search = useSearch({ from: "/console/runs" });
  const navigate = useNavigate();
  const [starts, setStarts] = useState(false);
  const workflows = useWorkflows();
  const flows = workflows.data?.items ?? [];
  const filters = { workflow: search.workflow, state: search.state };
  const list = useInfiniteQuery(runsQuery(filters));
  const rows = list.data?.pages.flatMap((page) => page.items) ?? [];
  const narrow = (change: RunsSearch) => void navigate({ to: "/runs", search: { ...search, ...change }, replace: true });
  const canStart = flows.length > 0;
  useShortcut({ keys: "n", label: "Start a run", group: "Runs" }, () => setStarts(true), canStart);
  usePaletteAction({ id: "start-run", label: "Start a run", group: "Runs", keywords: "workflow begin new" }, () => setStarts(true), canStart);
  const names = [{ value: "", label: "All workflows" }, ...flows.map((flow) => ({ value: flow.slug, label: flow.name }))];
  if (search.workflow && !flows.some((flow) => flow.slug === search.workflow)) names.push({ value: search.workflow, label: search.workflow });
  const count = list.data && `${rows.length}${list.hasNextPage ? "+" : ""} ${rows.length === 1 ? "run" : "runs"}`;
  const start = canStart && (
    <Button kind="primary" icon={<Play className="size-3.5" aria-hidden />} onClick={() => setStarts(true)}>
      Start a run
    </Button>
  );
  return (
    <Page
      title="Runs"
      fill
      count={count}
      actions={start}
      toolbar={
        <>
          <Select aria-label="Workflow" value={search.workflow ?? ""} options={names} onChange={(workflow) => narrow({ workflow: workflow || undefined })} />
          <Select
            aria-label="State"
            value={search.state?.join(",") ?? ""}
            options={STATES}
            onChange={(chosen) => narrow({ state: chosen ? TASK_STATES.filter((state) => chosen.split(",").includes(state)) : undefined })}
          />
        </>
      }
    >
      {list.isPending ? (
        <SkeletonRows label="Loading runs" />
      ) : list.isError ? (
        <ErrorState title="The runs could not be loaded" error={list.error} safe="Nothing is lost: runs are stored on the server." onRetry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <Nothing isFiltered={Boolean(search.workflow || search.state)} start={start || undefined} />
      ) : (
        <Table
          label="Runs"
          rows={rows}
          columns={COLUMNS}
          rowKey={(run) => run.id}
          still
          href={(run) => pageUrl(`/runs/${encodeURIComponent(run.id)}`)}
          onOpen={(run) => void navigate({ to: "/runs/$runId", params: { runId: run.id }, search })}
          onEnd={() => list.hasNextPage && !list.isFetchingNextPage && void list.fetchNextPage()}
          footer={list.isFetchingNextPage && <SkeletonRows rows={3} label="Loading more runs" />}
        />
      )}
      {starts && <StartDialog flows={flows} first={search.workflow} onClose={() => setStarts(false)} />}
    </Page>
  );
}

function Nothing({ isFiltered, start }: { isFiltered: boolean; start?: React.ReactNode }) {
  if (isFiltered) return <EmptyState icon={Network} title="No run fits these filters" />;
  if (start) {
    return (
      <EmptyState icon={Network} title="No runs yet" action={start}>
        Every run shows its steps here as they happen: a graph, a waterfall, and what each step was told and said.
      </EmptyState>
    );
  }
  return (
    <EmptyState icon={Network} title="No workflow is served" command="accord serve flow.yaml">
      A workflow is a YAML file with steps. Serve one beside your agents, and its runs appear here as they happen; so do those of <code>accord run</code> in the same store.
    </EmptyState>
  );
}
