import { describe, expect, it } from "vitest";
import { edgesOf, firing, fitting, layoutsOf, NODE, placed, ranksOf, shapeOf, zoomIn } from "./graph";
import { step } from "./testing";

const DIAMOND = [step("a"), step("b", { needs: ["a"] }), step("c", { needs: ["a"] }), step("d", { needs: ["b", "c"] })];
const pipeline = (length: number) => Array.from({ length }, (_, at) => step(`s${at}`, { needs: at === 0 ? [] : [`s${at - 1}`] }));
const rows = (spots: Map<string, { y: number }>) => Object.fromEntries([...spots].map(([name, spot]) => [name, spot.y]));

describe("the layout", () => {
  it("puts what comes after to the right, or below, and nothing onto another", () => {
    for (const [direction, along] of [["LR", "x"], ["TB", "y"]] as const) {
      const spots = placed(DIAMOND, direction);
      const of = (name: string) => spots.get(name) ?? { x: Number.NaN, y: Number.NaN };
      for (const edge of edgesOf(DIAMOND)) expect(of(edge.from)[along]).toBeLessThan(of(edge.to)[along]);
      const [b, c] = [of("b"), of("c")];
      expect(Math.abs(b.x - c.x) >= NODE.width || Math.abs(b.y - c.y) >= NODE.height).toBe(true);
    }
  });

  it("does not move while a run goes on: neither statuses nor items change it", () => {
    const later = [
      step("a", { status: "completed", attempts: 2, output: "x" }),
      step("b", { needs: ["a"], type: "map", status: "running" }),
      step("b[0]", { status: "completed" }),
      step("b[1]", { status: "running" }),
      step("c", { needs: ["a"], status: "failed" }),
      step("d", { needs: ["b", "c"], status: "skipped" }),
    ];
    expect(shapeOf(later)).toBe(shapeOf(DIAMOND));
    expect(placed(later, "LR")).toEqual(placed(DIAMOND, "LR"));
    expect(layoutsOf(shapeOf(later)).down).toEqual(placed(DIAMOND, "TB"));
  });

  it("goes down where that leaves names readable", () => {
    expect(fitting(layoutsOf(shapeOf(pipeline(8))), { width: 400, height: 800 }).direction).toBe("TB");
    expect(fitting(layoutsOf(shapeOf(pipeline(8))), { width: 2200, height: 500 }).direction).toBe("LR");
    expect(fitting(layoutsOf(shapeOf(pipeline(2))), { width: 800, height: 800 }).direction).toBe("LR");
    expect(zoomIn(placed(pipeline(1), "LR"), { width: 9000, height: 9000 })).toBe(1);
    expect(zoomIn(new Map(), { width: 10, height: 10 })).toBe(1);
  });

  it("is straight where the graph is, and even where it splits", () => {
    expect(new Set(Object.values(rows(placed(pipeline(5), "LR"))))).toEqual(new Set([0]));
    expect(rows(placed(DIAMOND, "LR"))).toEqual({ a: 38, b: 0, c: 76, d: 38 });
  });

  it("orders ranks so that edges do not cross without need, and keeps edges off the steps that they pass", () => {
    const crossed = [step("a"), step("b"), step("c", { needs: ["b"] }), step("d", { needs: ["a"] })];
    const spots = placed(crossed, "LR");
    expect((spots.get("a")?.y ?? 0) < (spots.get("b")?.y ?? 0)).toBe((spots.get("d")?.y ?? 0) < (spots.get("c")?.y ?? 0));
    const long = placed([...pipeline(3), step("end", { needs: ["s2", "s0"] })], "LR");
    expect(long.get("s1")?.y).not.toBe(long.get("end")?.y);
  });

  it("puts a step that needs nothing right before the one that needs it", () => {
    expect(ranksOf([...pipeline(4), step("key"), step("end", { needs: ["s3", "key"] })]).get("key")).toBe(3);
  });

  it("lays out thousands of steps plainly, by the longest way from a beginning", () => {
    expect(Object.fromEntries(ranksOf([...DIAMOND, step("e", { needs: ["a", "d"] })]))).toEqual({ a: 0, b: 1, c: 1, d: 2, e: 3 });
    const spots = placed(pipeline(2000), "LR");
    expect(spots.size).toBe(2000);
    expect(new Set([...spots.values()].map((spot) => `${spot.x} ${spot.y}`)).size).toBe(2000);
  });
});

describe("edges", () => {
  it("leave out what has no node", () => {
    expect(edgesOf([step("a"), step("b", { needs: ["a", "gone"] }), step("b[0]")]).map((edge) => edge.id)).toEqual(["a>b"]);
  });

  it("light up as they are passed", () => {
    const done = step("a", { status: "completed" });
    expect(firing(step("a"), step("b"))).toBe("idle");
    expect(firing(done, step("b"))).toBe("idle");
    expect(firing(done, step("b", { status: "running" }))).toBe("live");
    expect(firing(done, step("b", { status: "running", type: "approval" }))).toBe("passed");
    expect(firing(done, step("b", { status: "failed" }))).toBe("passed");
    expect(firing(step("a", { status: "failed" }), step("b", { status: "skipped" }))).toBe("cut");
    expect(firing(undefined, step("b"))).toBe("idle");
  });
});
