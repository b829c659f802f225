import type { StepView } from "@/api/types";

/** A step to test with: pending unless said otherwise. */
export function step(name: string, more: Partial<StepView> = {}): StepView {
  const at = name.lastIndexOf("[");
  return {
    name,
    type: "deterministic",
    status: "pending",
    agent: null,
    depth: at < 0 ? 0 : name.split("[").length - 1,
    parent: at < 0 ? null : name.slice(0, at),
    needs: [],
    attempts: 0,
    begin: null,
    end: null,
    exitCode: null,
    reason: null,
    error: null,
    output: "",
    isReused: false,
    verification: null,
    child: null,
    line: null,
    lastLine: null,
    ...more,
  };
}
