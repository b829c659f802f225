import type { Lane } from "@/api/types";
import { stateLook, toMs, type Tone, type WaterfallRow } from "@/ui";

/** States of things that are not tasks (attempts, deliveries, steps), beside those of tasks. */
const TONES: Record<string, Tone> = {
  delivered: "green",
  pending: "grey",
  retrying: "amber",
  dead: "red",
  running: "blue",
  waiting: "amber",
  succeeded: "green",
  skipped: "grey",
  error: "red",
};

export const toneOf = (state: string): Tone => TONES[state] ?? stateLook(state).tone;

/** Lanes in the order of their tree: each below its parent, further in. */
export function rowsOf(lanes: readonly Lane[]): WaterfallRow[] {
  const known = new Set(lanes.map((lane) => lane.id));
  const below = Map.groupBy(lanes, (lane) => (lane.parent !== null && known.has(lane.parent) ? lane.parent : null));
  const rows: WaterfallRow[] = [];
  function add(parent: string | null, depth: number): void {
    for (const lane of below.get(parent) ?? []) {
      rows.push(rowOf(lane, depth));
      add(lane.id, depth + 1);
    }
  }
  add(null, 0);
  return rows;
}

function rowOf(lane: Lane, depth: number): WaterfallRow {
  return {
    id: lane.id,
    label: lane.label,
    depth,
    bars: lane.segments.map((segment) => ({
      start: toMs(segment.begin),
      end: segment.end === null ? null : toMs(segment.end),
      tone: toneOf(segment.state),
      label: segment.label || segment.state,
      idle: lane.kind === "wait" || segment.state === "submitted" || toneOf(segment.state) === "amber",
    })),
  };
}
