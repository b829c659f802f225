import { expect, it } from "vitest";
import type { LogEvent } from "@/api/types";
import { linesAbout, linesOf } from "./log";
import { rowsOf } from "./waterfall";
import { step } from "./testing";

const event = (seq: number, kind: LogEvent["kind"], body: Record<string, unknown>): LogEvent => ({ seq, kind, at: "2030-01-01T00:00:00Z", gapMs: null, body: body as LogEvent["body"] });
const said = (seq: number, text: string, workflow: unknown) => event(seq, "status", { status: { state: "TASK_STATE_WORKING", message: { parts: [{ text }] } }, metadata: { workflow } });

it("reads what a run says about one of its steps", () => {
  const log = [
    said(1, "", { started: ["a", "b"] }),
    said(2, "", { step: "a", output: "half way\n\nnearly" }),
    said(3, "**[a]** Failed, will be tried again: no", { step: "a", status: "retrying" }),
    said(4, "**[b]** Completed", { step: "b", status: "completed" }),
    event(5, "other", { metadata: "odd" }),
  ];
  expect(linesAbout(log, "a").map((line) => [line.seq, line.text, line.tone])).toEqual([
    [1, "Begins", "faint"],
    [2, "half way", "plain"],
    [2, "", "plain"],
    [2, "nearly", "plain"],
    [3, "Failed, will be tried again: no", "red"],
  ]);
});

it("gathers what a task streams", () => {
  const chunk = (seq: number, text: string, append: boolean) => event(seq, "artifact", { artifact: { parts: [{ text }] }, append });
  const log = [said(1, "thinking", {}), chunk(2, "Hel", false), chunk(3, "lo", true), event(4, "status", { status: { state: "TASK_STATE_FAILED", message: { parts: [{ text: "broke" }, { data: 1 }] } } })];
  expect(linesOf(log).map((line) => [line.text, line.tone])).toEqual([
    ["thinking", "faint"],
    ["Hello", "plain"],
    ["broke", "red"],
  ]);
  expect(log[1]?.body).toEqual({ artifact: { parts: [{ text: "Hel" }] }, append: false });
});

const segment = (state: string, begin: number, end: number | null) => ({ state, label: "", begin: new Date(begin).toISOString(), end: end === null ? null : new Date(end).toISOString() });

it("makes a bar of each attempt and hatches the time between", () => {
  const lane = { id: "m[0]", label: "m[0]", kind: "step" as const, parent: "m", taskId: null, segments: [segment("failed", 0, 10), segment("submitted", 10, 20), segment("working", 20, null)] };
  const [row] = rowsOf([lane], [step("m"), step("m[0]")]);
  expect([row?.depth, row?.label]).toEqual([1, "[0]"]);
  expect(row?.bars.map((bar) => [bar.start, bar.end, bar.tone, bar.idle])).toEqual([
    [0, 10, "red", false],
    [10, 20, "grey", true],
    [20, null, "blue", false],
  ]);
});
