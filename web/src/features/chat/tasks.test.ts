import { describe, expect, it } from "vitest";
import type { TaskRow } from "@/api/types";
import type { ChatMessage } from "./message";
import { askedThen, chipOf, openTasksOf, taskOfAnswer } from "./tasks";

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
  question: null,
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

  it("comes from the view that says what is waited for", () => {
    const told = { taskId: "t", status: "working" as const, statusMessage: "Looking", seq: 2 };
    const row: TaskRow = { ...ROW, status: "input-required", statusMessage: "Pay it?", waiting: "approval", question: { id: "m1", text: "Pay it?", schema: null }, seq: 6 };
    expect(chipOf(told, row)).toMatchObject({ waits: "approve", question: { id: "m1", text: "Pay it?", schema: null } });
    expect(chipOf({ ...told, seq: 7 }, row)).toMatchObject({ waits: null, question: null });
    expect(chipOf(told, { ...row, waiting: "input", question: { id: null, text: "How much?", schema } }).question).toEqual({ text: "How much?", schema });
  });

  it("is what the message says while there is no row, or an older one", () => {
    const told = { taskId: "t", status: "input-required" as const, question: "Sure?", approval: true, seq: 9 };
    expect(chipOf(told, undefined)).toMatchObject({ waits: "approve", question: { text: "Sure?", schema: null } });
    expect(chipOf(told, ROW)).toMatchObject({ waits: "approve", question: { text: "Sure?", schema: null } });
    expect(chipOf({ ...told, waiting: "input", schema }, ROW)).toMatchObject({ waits: "reply", question: { text: "Sure?", schema } });
  });

  it("stays to be read when it was answered", () => {
    expect(askedThen({ taskId: "t", status: "input-required", question: "Sure?" })).toBe("Sure?");
    expect(askedThen({ taskId: "t", status: "completed", statusMessage: "Done" })).toBeNull();
  });
});

const answerAbout = (data: object): ChatMessage => ({ id: "m", role: "assistant", parts: [{ type: "data-task", id: "t", data: { taskId: "t", ...data } }], metadata: { taskId: "t", agent: "billing" } });

describe("the task of an answer", () => {
  const asking: TaskRow = { ...ROW, status: "input-required", waiting: "approval", question: { id: "m1", text: "Pay it?", schema: null }, seq: 6 };

  it("is what the row and the message know of it", () => {
    expect(taskOfAnswer(answerAbout({ status: "working", seq: 2 }), new Map([["t", asking]]))).toMatchObject({ id: "t", title: "Refund", waits: "approve" });
    expect(taskOfAnswer(answerAbout({ status: "input-required", approval: true, seq: 2 }), new Map())).toMatchObject({ waits: "approve" });
    expect(taskOfAnswer(answerAbout({ status: "working", seq: 2 }), new Map([["t", ROW]]))).toMatchObject({ waits: null });
    expect(taskOfAnswer({ id: "u", role: "user", parts: [] }, new Map([["t", asking]]))).toBeNull();
  });

  it("is open, and so are the tasks that it planned, until they have ended", () => {
    const planned = { type: "data-task" as const, id: "p", data: { taskId: "p", status: "submitted" as const, title: "Refund" } };
    const plan = answerAbout({ status: "completed", seq: 2 });
    const message: ChatMessage = { ...plan, parts: [...plan.parts, planned] };
    const open = (status: TaskRow["status"]) => openTasksOf(message, new Map([["p", { ...asking, id: "p", status }]])).map((task) => task.id);
    expect([open("input-required"), open("completed")]).toEqual([["p"], []]);
    expect(openTasksOf(answerAbout({ status: "input-required", seq: 2 }), new Map()).map((task) => task.id)).toEqual(["t"]);
  });
});
