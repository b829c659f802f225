import { describe, expect, it } from "vitest";
import { firstStep, itemsOf, nodeOf, selectedStep, stepBeside } from "./selection";
import { step } from "./testing";

const run = (...steps: ReturnType<typeof step>[]) => ({ steps, asks: null });
const ended = (name: string, second: number, more = {}) => step(name, { status: "completed", end: `2030-01-01T00:00:0${second}Z`, ...more });

describe("what is looked at first", () => {
  it("is what failed, of a map the item that did", () => {
    expect(firstStep(run(step("a", { status: "running" }), step("b", { status: "failed" })))).toBe("b");
    expect(firstStep(run(step("m", { type: "map", status: "failed" }), step("m[0]", { status: "completed" }), step("m[1]", { status: "failed" })))).toBe("m[1]");
    expect(firstStep(run(step("m", { type: "map", status: "failed" })))).toBe("m");
  });

  it("else what waits for somebody, then what is being done", () => {
    const busy = [step("a", { status: "running" }), step("b", { status: "running", type: "approval" })];
    expect(firstStep(run(...busy))).toBe("b");
    expect(firstStep({ steps: busy, asks: "a" })).toBe("a");
    expect(firstStep(run(step("m", { type: "map", status: "running" }), step("m[0]", { status: "waiting" })))).toBe("m[0]");
  });

  it("else what was done last", () => {
    expect(firstStep(run(ended("a", 5), ended("b", 7), ended("c", 7), ended("c[0]", 9), ended("d", 8, { status: "skipped" })))).toBe("c");
    expect(firstStep(run(step("a"), step("b")))).toBe("a");
    expect(firstStep(run())).toBeNull();
  });

  it("is what the address says, as long as the run has it", () => {
    const some = run(step("a"), step("b", { status: "failed" }));
    expect(selectedStep(some, "a")).toBe("a");
    expect(selectedStep(some, "gone")).toBe("b");
    expect(selectedStep(some, undefined)).toBe("b");
  });
});

describe("moving", () => {
  const some = run(step("a"), step("m", { type: "map" }), step("m[0]"), step("m[0][1]"));

  it("goes from step to step and stops at the ends", () => {
    expect(stepBeside(some, "a", 1)).toBe("m");
    expect(stepBeside(some, "a", -1)).toBe("a");
    expect(stepBeside(some, "m[0][1]", 1)).toBe("m[0][1]");
    expect(stepBeside(some, null, 1)).toBe("a");
    expect(stepBeside(run(), null, 1)).toBeNull();
  });

  it("shows items inside their maps", () => {
    expect(nodeOf("m[0][1]")).toBe("m");
    expect(nodeOf("plain")).toBe("plain");
    expect(itemsOf(some, "m").map((item) => item.name)).toEqual(["m[0]"]);
  });
});
