import { Graph, layout } from "@dagrejs/dagre";
import type { StepView } from "@/api/types";

/**
 * Where the steps of a run stand in its graph. Only the plan decides that, never how far the run is: nothing jumps while
 * it goes on. Items of maps have no nodes of their own, since nobody knows beforehand how many there will be.
 */

export const NODE = { width: 200, height: 56 };
const GAP = { rank: 44, node: 20 };
/** Beyond this the good layout takes too long, and nobody reads such a graph node by node. */
const MOST = 300;

export type Direction = "LR" | "TB";

export interface Spot {
  x: number;
  y: number;
}

export interface Edge {
  id: string;
  from: string;
  to: string;
}

type Planned = Pick<StepView, "name" | "needs" | "depth">;

export const topOf = <Step extends { depth: number }>(steps: readonly Step[]): Step[] => steps.filter((step) => step.depth === 0);

export function edgesOf(steps: readonly Planned[]): Edge[] {
  const known = new Set(topOf(steps).map((step) => step.name));
  return topOf(steps).flatMap((step) => step.needs.filter((need) => known.has(need)).map((need) => ({ id: `${need}>${step.name}`, from: need, to: step.name })));
}

/** The same steps with the same edges: while this stays the same, so does the layout. */
export function shapeOf(steps: readonly Planned[]): string {
  return JSON.stringify(topOf(steps).map((step) => [step.name, step.needs]));
}

/** The steps of a shape again. */
export function plannedIn(shape: string): Planned[] {
  return (JSON.parse(shape) as [string, string[]][]).map(([name, needs]) => ({ name, needs, depth: 0 }));
}

export function placed(steps: readonly Planned[], direction: Direction): Map<string, Spot> {
  return topOf(steps).length > MOST ? inRanks(steps, direction) : byDagre(steps, direction);
}

function byDagre(steps: readonly Planned[], direction: Direction): Map<string, Spot> {
  const graph = new Graph();
  graph.setGraph({ rankdir: direction, ranksep: GAP.rank, nodesep: GAP.node });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const step of topOf(steps)) graph.setNode(step.name, { ...NODE });
  for (const edge of edgesOf(steps)) graph.setEdge(edge.from, edge.to);
  layout(graph);
  // dagre tells the middle of a node, the page wants its corner.
  return new Map(
    topOf(steps).map((step) => {
      const { x, y } = graph.node(step.name) as Spot;
      return [step.name, { x: x - NODE.width / 2, y: y - NODE.height / 2 }];
    }),
  );
}

/** Plainly: a rank is the longest way from a beginning, and in a rank steps stand in the order of the plan. */
function inRanks(steps: readonly Planned[], direction: Direction): Map<string, Spot> {
  const ranks = ranksOf(steps);
  const taken = new Map<number, number>();
  const spots = new Map<string, Spot>();
  for (const step of topOf(steps)) {
    const rank = ranks.get(step.name) ?? 0;
    const place = taken.get(rank) ?? 0;
    taken.set(rank, place + 1);
    const along = direction === "LR" ? NODE.width : NODE.height;
    const across = direction === "LR" ? NODE.height : NODE.width;
    const [main, side] = [rank * (along + GAP.rank), place * (across + GAP.node)];
    spots.set(step.name, direction === "LR" ? { x: main, y: side } : { x: side, y: main });
  }
  return spots;
}

export function ranksOf(steps: readonly Planned[]): Map<string, number> {
  const after = new Map<string, Edge[]>(topOf(steps).map((step) => [step.name, []]));
  const open = new Map(topOf(steps).map((step) => [step.name, 0]));
  for (const edge of edgesOf(steps)) {
    after.get(edge.from)?.push(edge);
    open.set(edge.to, (open.get(edge.to) ?? 0) + 1);
  }
  const ranks = new Map<string, number>();
  const ready = [...open].filter(([, count]) => count === 0).map(([name]) => name);
  for (let name = ready.shift(); name !== undefined; name = ready.shift()) {
    const rank = ranks.get(name) ?? 0;
    ranks.set(name, rank);
    for (const edge of after.get(name) ?? []) {
      ranks.set(edge.to, Math.max(ranks.get(edge.to) ?? 0, rank + 1));
      const left = (open.get(edge.to) ?? 1) - 1;
      open.set(edge.to, left);
      if (left === 0) ready.push(edge.to);
    }
  }
  return ranks;
}

export interface Room {
  width: number;
  height: number;
}

/** How large a layout can be drawn in a room, at most as large as it is. */
export function zoomIn(spots: ReadonlyMap<string, Spot>, room: Room): number {
  const all = [...spots.values()];
  const width = Math.max(...all.map((spot) => spot.x)) + NODE.width - Math.min(...all.map((spot) => spot.x));
  const height = Math.max(...all.map((spot) => spot.y)) + NODE.height - Math.min(...all.map((spot) => spot.y));
  return all.length === 0 ? 1 : Math.min(1, room.width / width, room.height / height);
}

/** To the right, unless there is clearly more room downwards: names must stay readable. */
export function placedIn(steps: readonly Planned[], room: Room): { direction: Direction; spots: Map<string, Spot> } {
  const [right, down] = [placed(steps, "LR"), placed(steps, "TB")];
  return zoomIn(down, room) > zoomIn(right, room) * 1.15 ? { direction: "TB", spots: down } : { direction: "LR", spots: right };
}

/** An edge is passed once what it comes from has ended and what it leads to has begun; it is lively while that is worked at. */
export type Firing = "idle" | "passed" | "live" | "cut";

export function firing(from: StepView | undefined, to: StepView | undefined): Firing {
  if (!from || !to) return "idle";
  const isOver = from.status === "completed" || from.status === "skipped" || from.status === "failed";
  if (!isOver || to.status === "pending") return "idle";
  if (to.status === "skipped") return "cut";
  const isWorkedAt = (to.status === "running" && to.type !== "approval" && to.type !== "wait") || to.status === "waiting";
  return isWorkedAt ? "live" : "passed";
}
