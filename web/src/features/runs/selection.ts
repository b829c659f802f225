import type { RunView, StepView } from "@/api/types";

/** Which step is looked at: pure, so that the same run and address always show the same. */

type Run = Pick<RunView, "steps" | "asks">;

const isLeaf = (step: StepView) => step.type !== "map";

/**
 * What matters first: the step that failed (of a map, the item that did), then what somebody has to decide, then what is
 * being done, then the last thing that was done.
 */
export function firstStep(run: Run): string | null {
  const { steps } = run;
  const failed = steps.filter((step) => step.status === "failed");
  const found =
    failed.find(isLeaf) ??
    failed[0] ??
    steps.find((step) => step.name === run.asks) ??
    steps.find((step) => step.status === "running" && step.type === "approval") ??
    steps.find((step) => (step.status === "running" || step.status === "waiting") && isLeaf(step)) ??
    lastEnded(steps) ??
    steps[0];
  return found?.name ?? null;
}

function lastEnded(steps: readonly StepView[]): StepView | undefined {
  const ended = steps.filter((step) => step.end !== null && step.depth === 0 && step.type !== "barrier" && step.status !== "skipped");
  return ended.toSorted((left, right) => Date.parse(right.end ?? "") - Date.parse(left.end ?? "") || steps.indexOf(right) - steps.indexOf(left))[0];
}

/** The step that the address names, if the run has it; else the one that matters. */
export function selectedStep(run: Run, wanted: string | undefined): string | null {
  return wanted !== undefined && run.steps.some((step) => step.name === wanted) ? wanted : firstStep(run);
}

/** The next step in the order of the run, or the previous one; it stops at the ends. */
export function stepBeside(run: Run, current: string | null, by: 1 | -1): string | null {
  const at = run.steps.findIndex((step) => step.name === current);
  const next = at < 0 ? 0 : Math.min(Math.max(at + by, 0), run.steps.length - 1);
  return run.steps[next]?.name ?? null;
}

/** The node of the graph that stands for a step: items of maps are inside their maps. */
export function nodeOf(name: string): string {
  return name.replace(/\[.*$/, "");
}

export const itemsOf = (run: Run, name: string): StepView[] => run.steps.filter((step) => step.parent === name);
