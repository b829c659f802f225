import { describe, expect, it } from "vitest";
import { blocksOf, plainText } from "./blocks";
import type { ChatMessage } from "./message";

const shown = (parts: unknown[], metadata: ChatMessage["metadata"] = {}) => blocksOf({ parts: parts as ChatMessage["parts"], metadata });

describe("tasks in a message", () => {
  // proves: 0-14
  it("are introduced by a part of the tool createTask", () => {
    const part = { type: "tool-createTask", toolCallId: "c", state: "output-available", input: { title: "Ship", agent: "Warehouse" }, output: { taskId: "t", status: "submitted" } };
    expect(shown([part])).toEqual([{ kind: "task", key: "task-t", taskId: "t", data: { taskId: "t", title: "Ship", agent: "Warehouse", status: "submitted" } }]);
  });

  // proves: 0-13, 0-14
  it("are introduced by the message's metadata", () => {
    for (const artifactType of ["task", "canvas"]) {
      expect(shown([], { artifactType, taskId: "t" })).toEqual([{ kind: "task", key: "task-t", taskId: "t", data: { taskId: "t" } }]);
    }
    expect(shown([], { artifactType: "text", taskId: "t" })).toEqual([]);
  });

  it("are shown once, with all that is said of them", () => {
    const created = { type: "tool-createTask", toolCallId: "c", state: "output-available", input: { title: "Ship" }, output: { taskId: "t", status: "submitted" } };
    const told = { type: "data-task", id: "t", data: { taskId: "t", status: "completed", seq: 7 } };
    const blocks = shown([created, told, { type: "text", text: "ok" }], { artifactType: "task", taskId: "t" });
    expect(blocks.map((block) => block.kind)).toEqual(["task", "text"]);
    expect(blocks[0]).toMatchObject({ data: { title: "Ship", status: "completed", seq: 7 } });
  });

  it("are rows of their own while they are being made, and when they could not be", () => {
    const input = { title: "Ship" };
    expect(shown([{ type: "tool-createTask", toolCallId: "c", state: "input-available", input }])[0]).toMatchObject({ kind: "tool", state: "running", label: "Creating Ship" });
    expect(shown([{ type: "tool-createTask", toolCallId: "c", state: "output-error", input, errorText: "no" }])[0]).toMatchObject({ kind: "tool", state: "failed", error: "no" });
  });
});

describe("tools", () => {
  it("say what was planned, unless the tasks themselves are there", () => {
    const plan = { type: "tool-planTasks", toolCallId: "p", state: "output-available", input: {}, output: { tasks: [{ title: "A", agent: "Echo" }, { title: "B" }] } };
    expect(shown([plan])[0]).toMatchObject({ kind: "tool", state: "done", label: "Planned 2 tasks", lines: ["A · Echo", "B"] });
    const chip = { type: "data-task", id: "t", data: { taskId: "t", title: "A" } };
    expect(shown([plan, chip])[0]).toMatchObject({ label: "Planned 2 tasks", lines: [] });
  });

  it("are named in words", () => {
    expect(shown([{ type: "dynamic-tool", toolName: "fetch_orders", toolCallId: "x", state: "input-available", input: {} }])[0]).toMatchObject({ label: "Fetch orders", state: "running" });
    expect(shown([{ type: "tool-updateTask", toolCallId: "x", state: "output-available", input: { taskId: "t" }, output: { taskId: "t", status: "completed", title: "Ship" } }])[0]).toMatchObject({ label: "Ship is completed" });
  });
});

describe("the rest", () => {
  it("joins texts, and leaves out what is empty or unknown", () => {
    expect(shown([{ type: "step-start" }, { type: "text", text: "a" }, { type: "text", text: "" }, { type: "text", text: "b" }, { type: "data-weather", data: {} }])).toEqual([{ kind: "text", key: "1", text: "a\n\nb" }]);
  });

  it("shows a file of an artifact once", () => {
    const url = "/api/tasks/t/files/chart/0";
    const blocks = shown([{ type: "file", url, mediaType: "image/png" }, { type: "data-artifact", id: "chart", data: { artifactId: "chart", parts: [{ url, mediaType: "image/png" }] } }]);
    expect(blocks.map((block) => block.kind)).toEqual(["artifact"]);
  });

  it("takes no address for a link that is none", () => {
    expect(shown([{ type: "source-url", sourceId: "s", url: "javascript:alert(1)" }])).toEqual([]);
    expect(shown([{ type: "source-url", sourceId: "s", url: "https://example.org", title: "E" }])).toMatchObject([{ kind: "link", title: "E" }]);
  });

  it("shows the answers of a form by their names", () => {
    expect(shown([{ type: "data-reply", data: { account: "Acme", notify: true, lines: [1] } }])).toMatchObject([{ fields: [["account", "Acme"], ["notify", "yes"], ["lines", "[1]"]] }]);
  });

  it("survives parts of any shape", () => {
    expect(shown([{}, { type: "data-task", data: null }, { type: "data-artifact", data: { parts: 3 } }, { type: "tool-createTask" }, { type: "file" }]).map((block) => block.kind)).toEqual(["tool"]);
  });

  it("copies what was said", () => {
    expect(plainText({ parts: [{ type: "text", text: "a" }, { type: "reasoning", text: "hm" }], metadata: {} })).toBe("a");
  });
});
