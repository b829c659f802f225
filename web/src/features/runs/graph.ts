import type { StepView } from "@/api/types";

/**
 * Where the steps of a run stand in its graph. Only the plan decides that, never how far the run is: nothing jumps while
 * it goes on. Items of maps have no nodes of their own, since nobody knows beforehand how many there will be.
 */

export const NODE = { width: 200, height: 56 };
const GAP = { rank: 44, node: 20 };
/** Room that an edge keeps free in each rank that it passes. */
const BEND = 12;
/** Beyond this many, edges keep no room free: no reader follows single edges of such a graph. */
const MOST_BENDS = 4000;
/** Sweeps over all ranks that order the steps, and then sweeps that only straighten the edges. */
const ORDERING = 12;
const STRAIGHTENING = 6;

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

/** A place in a rank: that of a step, or of an edge that passes. `at` is its middle, across the direction of the graph. */
interface Place {
  name: string | null;
  size: number;
  at: number;
  before: Place[];
  after: Place[];
}

/**
 * A rank is the longest way from a beginning. Within a rank, steps are ordered and placed by the mean of their neighbors
 * (Sugiyama). The time grows with steps and edges, so that it stays below a frame for hundreds of steps.
 */
export function placed(steps: readonly Planned[], direction: Direction): Map<string, Spot> {
  const [along, across] = direction === "LR" ? [NODE.width, NODE.height] : [NODE.height, NODE.width];
  const ranks = placesOf(steps, across);
  for (const rank of ranks) spread(rank, rank.map((_, index) => index * (across + GAP.node)));
  for (let sweep = 0; sweep < ORDERING + STRAIGHTENING; sweep += 1) {
    const isDown = sweep % 2 === 0;
    for (const rank of isDown ? ranks : ranks.toReversed()) {
      const near = (place: Place) => (sweep >= ORDERING ? [...place.before, ...place.after] : isDown ? place.before : place.after);
      const wanted = new Map(rank.map((place) => [place, mean(near(place), place.at)]));
      if (sweep < ORDERING) rank.sort((left, right) => (wanted.get(left) ?? 0) - (wanted.get(right) ?? 0));
      spread(rank, rank.map((place) => wanted.get(place) ?? 0));
    }
  }
  const least = Math.min(...ranks.flat().map((place) => place.at - place.size / 2));
  const spots = new Map<string, Spot>();
  for (const [number, rank] of ranks.entries()) {
    for (const { name, at, size } of rank) {
      const [main, side] = [number * (along + GAP.rank), Math.round(at - size / 2 - least)];
      if (name !== null) spots.set(name, direction === "LR" ? { x: main, y: side } : { x: side, y: main });
    }
  }
  return spots;
}

const mean = (places: readonly Place[], otherwise: number): number => (places.length === 0 ? otherwise : places.reduce((sum, place) => sum + place.at, 0) / places.length);

/** The ranks with their places, in the order of the plan. */
function placesOf(steps: readonly Planned[], size: number): Place[][] {
  const place = (name: string | null): Place => ({ name, size: name === null ? BEND : size, at: 0, before: [], after: [] });
  const byName = new Map(topOf(steps).map((step) => [step.name, place(step.name)]));
  const edges = edgesOf(steps);
  const rankOf = ranksOf(steps);
  const ranks: Place[][] = [];
  for (const [name, one] of byName) (ranks[rankOf.get(name) ?? 0] ??= []).push(one);
  let bends = 0;
  for (const edge of edges) {
    const [from, to] = [rankOf.get(edge.from) ?? 0, rankOf.get(edge.to) ?? 0];
    let last = byName.get(edge.from);
    for (let rank = from + 1; rank <= to && last; rank += 1) {
      if (rank < to && bends >= MOST_BENDS) continue;
      const next = rank === to ? byName.get(edge.to) : place(null);
      if (!next) break;
      if (next.name === null) {
        bends += 1;
        ranks[rank]?.push(next);
      }
      last.after.push(next);
      next.before.push(last);
      last = next;
    }
  }
  return ranks;
}

/** Puts the places of a rank as near as possible to where they are wanted, in order and apart (pool adjacent violators). */
function spread(rank: readonly Place[], wanted: readonly number[]): void {
  const offsets: number[] = [];
  const pools: { sum: number; count: number }[] = [];
  for (const [index, place] of rank.entries()) {
    const previous = rank[index - 1];
    offsets.push(previous ? (offsets[index - 1] ?? 0) + (previous.size + place.size) / 2 + GAP.node : 0);
    let pool = { sum: (wanted[index] ?? 0) - (offsets[index] ?? 0), count: 1 };
    for (let above = pools.at(-1); above && above.sum / above.count > pool.sum / pool.count; above = pools.at(-1)) {
      pools.pop();
      pool = { sum: above.sum + pool.sum, count: above.count + pool.count };
    }
    pools.push(pool);
  }
  let index = 0;
  for (const pool of pools) {
    for (const end = index + pool.count; index < end; index += 1) {
      const place = rank[index];
      if (place) place.at = pool.sum / pool.count + (offsets[index] ?? 0);
    }
  }
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
  // What nothing comes before stands right before what needs it first.
  for (const [name, edges] of after) {
    const first = Math.min(...edges.map((edge) => ranks.get(edge.to) ?? 0));
    if (ranks.get(name) === 0 && edges.length > 0) ranks.set(name, Math.max(0, first - 1));
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

/** Everything about a graph that its shape decides. */
export interface Layouts {
  edges: Edge[];
  right: Map<string, Spot>;
  down: Map<string, Spot>;
}

export function layoutsOf(shape: string): Layouts {
  const steps = (JSON.parse(shape) as [string, string[]][]).map(([name, needs]) => ({ name, needs, depth: 0 }));
  return { edges: edgesOf(steps), right: placed(steps, "LR"), down: placed(steps, "TB") };
}

/** To the right, unless there is clearly more room downwards: names must stay readable. */
export function fitting({ right, down }: Layouts, room: Room): { direction: Direction; spots: Map<string, Spot> } {
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
