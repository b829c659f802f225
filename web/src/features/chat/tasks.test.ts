import { describe, expect, it } from "vitest";
import type { TaskRow } from "@/api/types";
import { askedBy, askedThen, chipOf } from "./tasks";

const ROW: TaskRow = {
  id: "t",
  contextId: "c",
  agent: "Billing",
  slug: "billing",
  title: "Refund",
  status: "working",
  statusMessage: "Looking",
  createdAt: "2026-01-01T00:00:00Z",
  updatedAt: "2026-01-01T00:00:05Z",
  owner: "",
  parentId: null,
  isRun: false,
  waiting: null,
  seq: 5,
};

describe("a chip", () => {
  it("shows what the message said until the feed says more", () => {
    expect(chipOf({ taskId: "t", title: "Refund", status: "submitted" }, undefined)).toMatchObject({ id: "t", title: "Refund", status: "submitted", endedAt: null });
    expect(chipOf({ taskId: "t", title: "old", status: "submitted", seq: 1 }, ROW)).toMatchObject({ title: "Refund", status: "working", line: "Looking" });
  });

  it("is not taken back by a row that is older than the message", () => {
    expect(chipOf({ taskId: "t", status: "completed", seq: 9 }, ROW)).toMatchObject({ status: "completed", title: "Refund", endedAt: ROW.updatedAt });
  });

  it("says what is waited for", () => {
    expect(chipOf({ taskId: "t" }, { ...ROW, status: "input-required", waiting: "input" }).waits).toBe("reply");
    expect(chipOf({ taskId: "t" }, { ...ROW, status: "input-required", waiting: "approval" }).waits).toBe("approve");
    expect(chipOf({ taskId: "t" }, { ...ROW, status: "auth-required", waiting: "auth" }).waits).toBe("auth");
    expect(chipOf({ taskId: "t" }, { ...ROW, status: "submitted", waiting: "execute" }).waits).toBe("execute");
    expect(chipOf({ taskId: "t", approval: true, status: "input-required" }, undefined).waits).toBe("approve");
  });

  it("waits for nothing any more when the task went on", () => {
    expect(chipOf({ taskId: "t", status: "input-required", approval: true, seq: 2 }, ROW).waits).toBeNull();
    expect(chipOf({ taskId: "t", status: "submitted", waiting: "execute", seq: 0 }, ROW).waits).toBeNull();
  });
});

describe("a question", () => {
  const schema = { type: "object", properties: { amount: { type: "number" } } };

  it("is read from the task's status", () => {
    const view = { task: { status: { message: { parts: [{ text: "How " }, { text: "much?" }], metadata: { schema } } } } };
    expect(askedBy(view, { taskId: "t" })).toEqual({ text: "How much?", schema, isApproval: false });
  });

  it("is what the message said while the task is not there", () => {
    expect(askedBy(undefined, { taskId: "t", question: "Sure?", approval: true })).toEqual({ text: "Sure?", schema: null, isApproval: true });
  });

  it("stays to be read when it was answered", () => {
    expect(askedThen({ taskId: "t", status: "input-required", question: "Sure?" })).toBe("Sure?");
    expect(askedThen({ taskId: "t", status: "completed", statusMessage: "Done" })).toBeNull();
  });
});
