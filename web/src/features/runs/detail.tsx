import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { ChevronRight, CircleX, Ellipsis, FileCode, Network, RotateCw, Rows3, SquareSplitVertical, X } from "lucide-react";
import { lazy, Suspense, useState, type ReactNode } from "react";
import { chunk } from "@/api/chunks";
import { ApiError, apiUrl, pageUrl } from "@/api/client";
import { useSession } from "@/api/session";
import { usePaletteAction } from "@/app/actions";
import type { RunView, StepView } from "@/api/types";
import { useTopic } from "@/live/live";
import { Button, Clock, ConfirmDialog, CopyMenu, cx, Duration, EmptyState, ErrorState, IconButton, isEnded, JsonView, Markdown, Menu, Notice, Page, Section, SkeletonPage, SkeletonPanel, StateBadge, Tabs, useShortcut, Waterfall } from "@/ui";
import { curlFor } from "../tasks/calls";
import { Progress, StepMark } from "./look";
import { useCancelRun, useRun, useRunTimeline, type Again } from "./queries";
import { RerunDialog } from "./RerunDialog";
import { VIEWS, type RunLook, type RunsSearch } from "./search";
import { nodeOf, selectedStep, stepBeside } from "./selection";
import { Source } from "./Source";
import { StepPanel } from "./StepPanel";
import { rowsOf } from "./waterfall";

const Graph = lazy(() => chunk(() => import("./Graph")));

export default function RunDetail() {
  const { runId } = useParams({ from: "/console/runs/$runId" });
  const run = useRun(runId);
  useTopic(`task:${runId}`);
  if (run.isPending) return <SkeletonPage />;
  if (run.error instanceof ApiError && run.error.status === 404) return <Missing />;
  if (run.isError && !run.data) {
    return <ErrorState title="The run could not be loaded" error={run.error} safe="Nothing is lost: it is stored on the server." onRetry={() => void run.refetch()} />;
  }
  return <Shown key={runId} run={run.data} />;
}

function Missing() {
  return (
    <EmptyState title="There is no such run" action={<Link to="/runs" className="link text-sm">All runs</Link>}>
      It may have been removed, or it belongs to somebody else.
    </EmptyState>
  );
}

function Shown({ run }: { run: RunView }) {
  const search = useSearch({ from: "/console/runs" });
  const navigate = useNavigate();
  const view = search.view ?? "graph";
  const selected = selectedStep(run, search.step);
  const step = run.steps.find((one) => one.name === selected);
  const go = (change: RunsSearch) => void navigate({ to: "/runs/$runId", params: { runId: run.id }, search: { ...search, ...change }, replace: true });
  const select = (name: string | null) => name !== null && go({ step: name, tab: undefined });
  useShortcut({ keys: "j", label: "Next step", group: "Run", repeats: true }, () => select(stepBeside(run, selected, 1)));
  useShortcut({ keys: "k", label: "Previous step", group: "Run", repeats: true }, () => select(stepBeside(run, selected, -1)));
  useShortcut({ keys: "v", label: "Graph, waterfall, both", group: "Run" }, () => go({ view: VIEWS[(VIEWS.indexOf(view) + 1) % VIEWS.length] }));
  useShortcut({ keys: "y", label: "Show or hide the document", group: "Run" }, () => go({ yaml: search.yaml ? undefined : true }));
  useShortcut({ keys: "Escape", label: "Back to the runs", group: "Run" }, () => void navigate({ to: "/runs", search: { workflow: search.workflow, state: search.state } }));

  return (
    <Page title={<Title run={run} search={search} />} fill actions={<Actions run={run} />} toolbar={<Toolbar run={run} view={view} yaml={search.yaml} onGo={go} />}>
      <div className="flex min-h-0 flex-1 max-rail:flex-col max-rail:overflow-y-auto">
        <div className="flex min-h-0 min-w-0 flex-1 max-rail:flex-none max-rail:flex-col">
          <div className="flex min-h-0 min-w-0 flex-1 flex-col">
            {run.steps.length === 0 ? (
              <NotBegun run={run} />
            ) : (
              <>
                {view !== "waterfall" && (
                  <div className="min-h-0 flex-1 border-b border-line last:border-b-0 max-rail:h-80 max-rail:flex-none">
                    <Suspense fallback={<SkeletonPanel />}>
                      <Graph steps={run.steps} selected={selected === null ? null : nodeOf(selected)} onSelect={select} />
                    </Suspense>
                  </div>
                )}
                {view !== "graph" && (
                  <div className={cx("min-h-0 overflow-y-auto p-4", view === "split" ? "max-h-[45%] shrink-0 max-rail:max-h-none" : "flex-1")}>
                    <Times run={run} selected={selected} onSelect={select} />
                  </div>
                )}
              </>
            )}
          </div>
          {search.yaml && (
            <div className="min-h-0 w-[42%] min-w-72 shrink-0 border-l border-line max-rail:h-80 max-rail:w-full max-rail:border-t max-rail:border-l-0">
              <Source code={run.document} step={step} onLine={(line) => select(stepAt(run, line))} />
            </div>
          )}
        </div>
        <aside aria-label="Details" className="w-[420px] shrink-0 overflow-y-auto border-l border-line px-5 pb-6 max-rail:w-full max-rail:overflow-visible max-rail:border-t max-rail:border-l-0 max-phone:px-4">
          <Tabs
            label="Details"
            className="pt-2"
            selected={step && search.tab !== "run" ? "step" : "run"}
            onSelect={(tab) => go({ tab: tab === "run" ? "run" : undefined })}
            tabs={[
              ...(step ? [{ id: "step", label: "Step", content: <StepPanel key={step.name} run={run} step={step} onSelect={select} /> }] : []),
              { id: "run", label: "Run", content: <RunPanel run={run} /> },
            ]}
          />
        </aside>
      </div>
    </Page>
  );
}

/** The step whose lines a line of the document is among. */
function stepAt(run: RunView, line: number): string | null {
  const found = run.steps.find((step) => step.depth === 0 && step.line !== null && step.line <= line && line <= (step.lastLine ?? step.line));
  return found?.name ?? null;
}

function Title({ run, search }: { run: RunView; search: RunsSearch }) {
  return (
    <span className="flex min-w-0 items-center gap-1.5">
      <Link to="/runs" search={{ workflow: search.workflow, state: search.state }} className="text-faint hover:text-ink">
        Runs
      </Link>
      <ChevronRight className="size-4 shrink-0 text-faint" aria-hidden />
      <span className="truncate">{run.workflow}</span>
    </span>
  );
}

const LOOKS: Record<RunLook, { label: string; icon: ReactNode }> = {
  graph: { label: "Graph", icon: <Network /> },
  waterfall: { label: "Waterfall", icon: <Rows3 /> },
  split: { label: "Graph and waterfall", icon: <SquareSplitVertical /> },
};

function Toolbar({ run, view, yaml, onGo }: { run: RunView; view: RunLook; yaml?: true; onGo: (change: RunsSearch) => void }) {
  return (
    <>
      <StateBadge state={run.status} />
      <Duration start={run.begin} end={isEnded(run.status) ? run.updatedAt : null} className="text-sm text-soft" />
      <Progress run={run} className="w-36 max-phone:hidden" />
      <div role="group" aria-label="How it is shown" className="ml-auto flex items-center gap-0.5">
        {VIEWS.map((one) => (
          <IconButton key={one} label={LOOKS[one].label} pressed={view === one} onClick={() => onGo({ view: one === "graph" ? undefined : one })}>
            {LOOKS[one].icon}
          </IconButton>
        ))}
        <span className="mx-1 h-4 w-px bg-line" aria-hidden />
        <IconButton label="Document" pressed={yaml === true} onClick={() => onGo({ yaml: yaml ? undefined : true })}>
          <FileCode />
        </IconButton>
      </div>
    </>
  );
}

function Actions({ run }: { run: RunView }) {
  const [cancels, setCancels] = useState(false);
  const cancel = useCancelRun(run.id);
  const [again, setAgain] = useState<Again | null>(null);
  const can = (action: RunView["actions"][number]) => run.actions.includes(action);
  usePaletteAction({ id: "rerun", label: "Re-run from the failure", group: "Run" }, () => setAgain({}), can("rerun"));
  usePaletteAction({ id: "again", label: "Run everything again", group: "Run" }, () => setAgain({ fresh: true }), can("again"));
  usePaletteAction({ id: "cancel-run", label: "Cancel the run", group: "Run" }, () => setCancels(true), can("cancel"));
  const isOpen = useSession().data?.isOpen ?? true;
  const api = new URL(apiUrl(`/api/runs/${encodeURIComponent(run.id)}`), window.location.href).href;
  return (
    <div className="flex items-center gap-1.5">
      {can("rerun") && (
        <Button kind="primary" icon={<RotateCw className="size-3.5" aria-hidden />} onClick={() => setAgain({})}>
          <span>
            Re-run<span className="max-phone:sr-only"> from failure</span>
          </span>
        </Button>
      )}
      {can("again") && <Menu label="More ways to run it again" icon={<Ellipsis />} items={[{ label: "Run everything again", icon: <RotateCw />, onSelect: () => setAgain({ fresh: true }) }]} />}
      {can("cancel") && (
        <Button kind="danger" icon={<X className="size-3.5" aria-hidden />} onClick={() => setCancels(true)}>
          Cancel
        </Button>
      )}
      {again && <RerunDialog runId={run.id} how={again} onClose={() => setAgain(null)} />}
      <CopyMenu id={run.id} path={pageUrl(`/runs/${encodeURIComponent(run.id)}`)} curl={curlFor(api, isOpen)} />
      <ConfirmDialog
        title="Cancel the run?"
        open={cancels}
        action="Cancel the run"
        busy={cancel.isPending}
        onClose={() => setCancels(false)}
        onConfirm={() => cancel.mutate(undefined, { onSettled: () => setCancels(false) })}
      >
        What its steps are doing is stopped. What is done stays done: it can be re-run from there.
      </ConfirmDialog>
    </div>
  );
}

function Times({ run, selected, onSelect }: { run: RunView; selected: string | null; onSelect: (name: string) => void }) {
  const timeline = useRunTimeline(run.id);
  if (timeline.isPending) return <SkeletonPanel />;
  if (timeline.isError && !timeline.data) return <ErrorState title="The waterfall could not be loaded" error={timeline.error} onRetry={() => void timeline.refetch()} />;
  const steps = new Map<string, StepView>(run.steps.map((step) => [step.name, step]));
  const rows = rowsOf(timeline.data.lanes, run.steps).map((row) => {
    const step = steps.get(row.id);
    return { ...row, icon: step && <StepMark step={step} /> };
  });
  return <Waterfall label="When the steps were done" rows={rows} selected={selected} onSelect={onSelect} />;
}

/** A run of which nothing is written down: it waits for a node, or was refused. */
function NotBegun({ run }: { run: RunView }) {
  if (run.status === "rejected" || run.status === "failed") {
    return (
      <EmptyState icon={CircleX} title={run.status === "rejected" ? "The run was refused" : "The run failed before its first step"}>
        <span className="break-words whitespace-pre-wrap">{run.error}</span>
      </EmptyState>
    );
  }
  return (
    <EmptyState icon={Network} title="It has not begun yet">
      It begins as soon as a node has room for it.
    </EmptyState>
  );
}

function RunPanel({ run }: { run: RunView }) {
  const hasInputs = Object.keys(run.inputs).length > 0;
  return (
    <div className="flex flex-col gap-6">
      {run.error && <Notice tone={run.status === "canceled" ? "grey" : "red"}>{run.error}</Notice>}
      <dl className="grid grid-cols-[88px_1fr] gap-x-4 gap-y-1.5 text-sm">
        <dt className="text-faint">Run</dt>
        <dd className="min-w-0 truncate">
          <code title={run.id}>{run.id}</code>
        </dd>
        <dt className="text-faint">Task</dt>
        <dd>
          <Link to="/tasks/$taskId" params={{ taskId: run.id }} className="link">
            Open its canvas
          </Link>
        </dd>
        <dt className="text-faint">Agent</dt>
        <dd>{run.slug ? <Link to="/agents/$slug" params={{ slug: run.slug }} className="link">{run.agent}</Link> : run.agent}</dd>
        <dt className="text-faint">Began</dt>
        <dd>
          <Clock at={run.begin} />
        </dd>
        {run.previous && (
          <>
            <dt className="text-faint">Goes on from</dt>
            <dd>
              <Link to="/runs/$runId" params={{ runId: run.previous }} className="link">
                <code>{run.previous.slice(-12)}</code>
              </Link>
            </dd>
          </>
        )}
        {run.parentId && (
          <>
            <dt className="text-faint">Part of</dt>
            <dd>
              <Link to="/runs/$runId" params={{ runId: run.parentId }} className="link">
                <code>{run.parentId.slice(-12)}</code>
              </Link>
            </dd>
          </>
        )}
      </dl>
      {run.output && (
        <Section title="Result">
          <div className="rounded-md border border-line px-3.5 py-3">
            <Markdown text={run.output} />
          </div>
        </Section>
      )}
      {run.input && (
        <Section title="Input">
          <p className="text-sm break-words whitespace-pre-wrap">{run.input}</p>
        </Section>
      )}
      {hasInputs && (
        <Section title="Inputs">
          <JsonView value={run.inputs} />
        </Section>
      )}
    </div>
  );
}
