import type { Lane, StepView } from "@/api/types";
import { stateLook, toMs, type Bar, type WaterfallRow } from "@/ui";

const IDLE = new Set(["submitted", "input-required", "auth-required"]);

/** Lanes of a timeline as rows: one bar for each attempt, the time between two of them hatched. Items stand below their maps. */
export function rowsOf(lanes: readonly Lane[], steps: readonly StepView[]): Omit<WaterfallRow, "icon">[] {
  const depths = new Map(steps.map((step) => [step.name, step.depth]));
  return lanes.map((lane) => ({ id: lane.id, label: lane.parent === null ? lane.label : lane.label.slice(lane.parent.length), depth: depths.get(lane.id) ?? 0, bars: lane.segments.map(barOf) }));
}

function barOf(segment: Lane["segments"][number]): Bar {
  return {
    start: toMs(segment.begin),
    end: segment.end === null ? null : toMs(segment.end),
    tone: stateLook(segment.state).tone,
    label: segment.label || stateLook(segment.state).word,
    idle: IDLE.has(segment.state),
  };
}
