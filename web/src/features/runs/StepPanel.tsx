import { Link } from "@tanstack/react-router";
import { CircleX, RotateCw, ShieldQuestionMark } from "lucide-react";
import { useState, type ReactNode } from "react";
import type { RunView, StepDetail, StepView, TryView } from "@/api/types";
import { TraceOf } from "@/features/tasks/canvas/Trace";
import { useTaskAction } from "@/features/tasks/queries";
import { Button, Clock, CodeBlock, cx, Decision, Duration, ErrorState, Field, JsonView, Markdown, Notice, Section, SkeletonPanel, Textarea } from "@/ui";
import { itemsOf } from "./selection";
import { StepBadge, StepMark, typeWord } from "./look";
import { useDecision, useStep } from "./queries";
import { RerunDialog } from "./RerunDialog";
import { StepLog } from "./StepLog";

interface StepPanelProps {
  run: RunView;
  step: StepView;
  onSelect: (name: string) => void;
}

/** Everything about one step: what went wrong first, then what can be done about it, then the rest. */
export function StepPanel({ run, step, onSelect }: StepPanelProps) {
  const isBarrier = step.type === "barrier";
  return (
    <div className="flex flex-col gap-6">
      <Head run={run} step={step} onSelect={onSelect} />
      {isBarrier ? <p className="text-sm text-soft">Waits for {step.needs.join(", ")}.</p> : <Known run={run} step={step} onSelect={onSelect} />}
    </div>
  );
}

function Head({ run, step, onSelect }: StepPanelProps) {
  const [asks, setAsks] = useState(false);
  const canRerun = run.actions.includes("again") && step.depth === 0 && step.type !== "barrier";
  return (
    <div className="flex flex-col gap-2">
      {step.parent !== null && (
        <button type="button" className="link self-start text-xs" onClick={() => onSelect(step.parent as string)}>
          Item of {step.parent}
        </button>
      )}
      <div className="flex min-w-0 items-center gap-2">
        <h2 className="min-w-0 flex-1 truncate text-lg font-semibold" title={step.name}>
          {step.name}
        </h2>
        <StepBadge step={step} />
      </div>
      {canRerun && (
        <div>
          <Button size="small" icon={<RotateCw className="size-3.5" aria-hidden />} onClick={() => setAsks(true)}>
            Re-run from here
          </Button>
          {asks && <RerunDialog runId={run.id} how={{ from: step.name }} onClose={() => setAsks(false)} />}
        </div>
      )}
    </div>
  );
}

function Known({ run, step, onSelect }: StepPanelProps) {
  const found = useStep(run.id, step.name);
  // What the run says of the step is newer than what was read of it before; a skeleton would only flicker.
  const detail = found.data ? { ...found.data, ...pick(step, found.data) } : null;
  const items = itemsOf(run, step.name);
  return (
    <>
      {step.error && (
        <Notice tone={step.status === "failed" ? "red" : "grey"} icon={step.status === "failed" && <CircleX className="mt-0.5 size-4 shrink-0 text-red" aria-hidden />}>
          <p className="max-h-60 overflow-y-auto break-words whitespace-pre-wrap">{detail?.error ?? step.error}</p>
          {step.status === "failed" && step.child && <TraceOf taskId={step.child} className="mt-2" />}
          {step.status === "failed" && run.actions.includes("rerun") && <p className="mt-1.5 text-soft">Mend what is wrong, then re-run: what is done is not done again.</p>}
        </Notice>
      )}
      <Asked run={run} step={step} question={detail?.input} />
      <Facts step={step} detail={detail} />
      {items.length > 0 && <Items items={items} onSelect={onSelect} />}
      {found.isError && !detail ? (
        <ErrorState title="The step could not be loaded" error={found.error} onRetry={() => void found.refetch()} />
      ) : detail ? (
        <Said detail={detail} />
      ) : (
        <SkeletonPanel />
      )}
      {step.begin !== null && <StepLog runId={run.id} step={step} />}
    </>
  );
}

/** The detail follows the row at once where both say the same thing. */
function pick(step: StepView, detail: StepDetail): Partial<StepDetail> {
  const { error, output, ...rest } = step;
  return { ...rest, error: detail.error ?? error, output: detail.output || output };
}

function Asked({ run, step, question }: { run: RunView; step: StepView; question: string | undefined }) {
  const isDecision = step.type === "approval" && step.status === "running";
  if (isDecision && run.actions.includes("approve")) {
    // In a loop it is asked again: that is another question.
    return <Decide key={step.begin} runId={run.id} step={step.name} question={question ?? (run.asks === step.name ? (run.question ?? "") : "")} />;
  }
  if (!isDecision && run.asks === step.name && run.question !== null) return <Answer runId={run.id} question={run.question} />;
  return null;
}

function Decide({ runId, step, question }: { runId: string; step: string; question: string }) {
  const decide = useDecision(runId, step);
  return (
    <Notice tone="amber" icon={<ShieldQuestionMark className="mt-0.5 size-4 shrink-0 text-amber" aria-hidden />}>
      <div className="flex flex-col gap-3">
        <p className="font-medium break-words whitespace-pre-wrap">{question || `Approve ${step}?`}</p>
        <Decision busy={decide.isPending} onDecide={(approved, comment) => decide.mutateAsync({ approved, comment })} />
      </div>
    </Notice>
  );
}

function Answer({ runId, question }: { runId: string; question: string }) {
  const [text, setText] = useState("");
  const reply = useTaskAction(runId, "reply");
  return (
    <Notice tone="amber" icon={<ShieldQuestionMark className="mt-0.5 size-4 shrink-0 text-amber" aria-hidden />}>
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          reply.mutate({ text }, { onSuccess: () => setText("") });
        }}
      >
        <p className="font-medium break-words whitespace-pre-wrap">{question}</p>
        <Field label="Answer">
          <Textarea rows={2} value={text} required onChange={(event) => setText(event.target.value)} />
        </Field>
        <Button kind="primary" type="submit" busy={reply.isPending} className="self-start">
          Answer
        </Button>
      </form>
    </Notice>
  );
}

function Facts({ step, detail }: { step: StepView; detail: StepDetail | null }) {
  const rows: [string, ReactNode][] = [["Type", typeWord(step.type)]];
  if (step.agent) rows.push(["Agent", step.agent]);
  if (detail?.description) rows.push(["About", detail.description]);
  if (step.needs.length > 0) rows.push(["After", step.needs.join(", ")]);
  if (detail?.condition) rows.push(["If", <code key="if">{detail.condition}</code>]);
  if (step.begin !== null && !step.isReused) rows.push(["Began", <Clock key="began" at={step.begin} />], [step.end === null ? "For" : "Took", <Duration key="took" start={step.begin} end={step.end} />]);
  if (step.attempts > 1) rows.push(["Attempts", String(step.attempts)]);
  if (step.exitCode !== null) rows.push(["Exit code", <code key="code">{step.exitCode}</code>]);
  if (step.child) {
    rows.push([
      "Task",
      <Link key="task" to="/tasks/$taskId" params={{ taskId: step.child }} className="link">
        <code>{step.child.slice(-12)}</code>
      </Link>,
    ]);
  }
  if (step.verification) rows.push(["Verified", <Verified key="verified" check={step.verification} />]);
  return (
    <dl className="grid grid-cols-[88px_1fr] gap-x-4 gap-y-1.5 text-sm">
      {rows.map(([label, value]) => (
        <div key={label} className="contents">
          <dt className="text-faint">{label}</dt>
          <dd className="min-w-0 break-words">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Verified({ check }: { check: NonNullable<StepView["verification"]> }) {
  const tone = check.passed === null ? "text-faint" : check.passed ? "text-green" : "text-red";
  const word = check.passed === null ? "not yet" : check.passed ? "passed" : "failed";
  return (
    <span>
      <span className={tone}>{word}</span>
      <span className="text-soft"> · {check.description ?? check.type.replaceAll("_", " ")} </span>
      {check.value && <code>{check.value}</code>}
    </span>
  );
}

const MOST_ITEMS = 200;

function Items({ items, onSelect }: { items: readonly StepView[]; onSelect: (name: string) => void }) {
  const shown = items.slice(0, MOST_ITEMS);
  return (
    <Section title={`Items (${items.length})`}>
      <ul className="overflow-hidden rounded-md border border-line">
        {shown.map((item) => (
          <li key={item.name} className="border-b border-line last:border-b-0">
            <button type="button" onClick={() => onSelect(item.name)} className="flex h-8 w-full items-center gap-2 px-2.5 text-left text-sm hover:bg-hover">
              <StepMark step={item} />
              <span className="shrink-0">{item.name.slice(item.name.lastIndexOf("["))}</span>
              <span className={cx("min-w-0 flex-1 truncate text-xs", item.error ? "text-red" : "text-faint")}>{item.error ?? item.output}</span>
              {item.begin !== null && <Duration start={item.begin} end={item.end} className="shrink-0 text-xs text-faint" />}
            </button>
          </li>
        ))}
      </ul>
      {items.length > shown.length && <p className="text-xs text-faint">and {items.length - shown.length} more, in the waterfall</p>}
    </Section>
  );
}

const SPOKEN = new Set(["agent", "a2a", "workflow"]);

function Said({ detail }: { detail: StepDetail }) {
  return (
    <>
      {detail.item !== null && detail.item !== undefined && (
        <Section title="Item">{typeof detail.item === "string" ? <CodeBlock wrap code={detail.item} /> : <JsonView value={detail.item} />}</Section>
      )}
      {detail.input && !(detail.type === "approval" && detail.status === "running") && (
        <Section title={detail.type === "deterministic" ? "Command" : "Input"}>
          <CodeBlock wrap code={detail.input} />
        </Section>
      )}
      {detail.output && (
        <Section title="Output">
          {SPOKEN.has(detail.type) ? (
            <div className="rounded-md border border-line px-3.5 py-3">
              <Markdown text={detail.output} />
            </div>
          ) : (
            <CodeBlock wrap code={detail.output} />
          )}
        </Section>
      )}
      {detail.tries.length > 1 && (
        <Section title="Attempts">
          <ul className="overflow-hidden rounded-md border border-line">
            {detail.tries.map((one) => (
              <li key={one.attempt} className="border-b border-line last:border-b-0">
                <Try one={one} type={detail.type} />
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}

function Try({ one, type }: { one: TryView; type: string }) {
  return (
    <div className="flex flex-col gap-0.5 px-2.5 py-1.5 text-sm">
      <div className="flex items-center gap-2">
        <StepMark step={{ status: one.status, type, isReused: false }} />
        <span className="flex-1">Attempt {one.attempt}</span>
        {one.child && (
          <Link to="/tasks/$taskId" params={{ taskId: one.child }} className="link text-xs">
            Task
          </Link>
        )}
        {one.begin !== null && <Duration start={one.begin} end={one.end} className="text-xs text-faint" />}
      </div>
      {one.error && <p className="line-clamp-3 pl-6 text-xs break-words whitespace-pre-wrap text-red">{one.error}</p>}
    </div>
  );
}
