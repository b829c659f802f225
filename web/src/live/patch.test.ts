import { describe, expect, test } from "vitest";
import type { Query } from "@/api/client";
import type { TaskPage, TaskRow } from "@/api/types";
import { taskPage, taskRow, taskView } from "@/testing/rows";
import { matches, patchInbox, patchTaskPages, patchTaskView, type Pages } from "./patch";

const minute = (at: number) => `2026-01-01T10:${String(at).padStart(2, "0")}:00.000Z`;
const pages = (...parts: TaskPage[]): Pages<TaskPage> => ({ pages: parts, pageParams: parts.map(() => null) });
const rows = (...list: TaskRow[]) => new Map(list.map((row) => [row.id, row]));
const ids = (data: Pages<TaskPage>) => data.pages.map((page) => page.items.map((item) => item.id));

describe("a list of tasks", () => {
  const a = taskRow({ id: "a", createdAt: minute(3), seq: 3 });
  const b = taskRow({ id: "b", createdAt: minute(2), seq: 3 });
  const c = taskRow({ id: "c", createdAt: minute(1), seq: 3 });

  test("a row that changed stays where it is", () => {
    const after = patchTaskPages(pages(taskPage([a, b, c])), rows({ ...c, status: "completed", seq: 4 }), {});
    expect(ids(after)).toEqual([["a", "b", "c"]]);
    expect(after.pages[0]?.items[2]?.status).toBe("completed");
    expect(after.pages[0]?.total).toBe(3);
  });

  test("an older view of a row changes nothing", () => {
    const before = pages(taskPage([a]));
    expect(patchTaskPages(before, rows({ ...a, status: "submitted", seq: 2 }), {})).toBe(before);
  });

  test("a new row goes where its age puts it, and is counted", () => {
    const fresh = taskRow({ id: "n", createdAt: minute(9) });
    const between = taskRow({ id: "m", createdAt: "2026-01-01T10:02:30.000Z" });
    const after = patchTaskPages(pages(taskPage([a, b, c])), rows(fresh, between), {});
    expect(ids(after)).toEqual([["n", "a", "m", "b", "c"]]);
    expect(after.pages[0]?.total).toBe(5);
  });

  test("a row of a page that is not loaded yet is left to that page", () => {
    const before = pages(taskPage([a, b], { next: "more", total: 50 }));
    expect(patchTaskPages(before, rows(c), {})).toBe(before);
  });

  test("a row that no longer matches the filter leaves, and one that begins to match comes", () => {
    const filters: Query = { state: ["working"] };
    const after = patchTaskPages(pages(taskPage([a, c])), rows({ ...a, status: "failed", seq: 4 }, b), filters);
    expect(ids(after)).toEqual([["b", "c"]]);
    expect(after.pages[0]?.total).toBe(2);
  });

  test("filters mean what they mean on the server", () => {
    const row = taskRow({ id: "abc-1", title: "Plan the Trip", slug: "trip", parentId: "p", contextId: "c9", createdAt: minute(30) });
    const cases: [Query, boolean][] = [
      [{}, true],
      [{ state: ["failed", "working"] }, true],
      [{ state: "failed" }, false],
      [{ agent: "trip" }, true],
      [{ agent: "echo" }, false],
      [{ q: "the trip" }, true],
      [{ q: "ABC" }, true],
      [{ q: "nothing" }, false],
      [{ top: 1 }, false],
      [{ parent: "p" }, true],
      [{ contextId: "c1" }, false],
      [{ since: minute(20) }, true],
      [{ since: minute(40) }, false],
    ];
    for (const [filters, expected] of cases) expect([filters, matches(row, filters)]).toEqual([filters, expected]);
  });
});

describe("an open task", () => {
  test("takes over what its row says and keeps the rest", () => {
    const view = taskView({ seq: 4, actions: ["cancel"] });
    const after = patchTaskView(view, rows(taskRow({ seq: 5, status: "completed" })));
    expect(after).toMatchObject({ status: "completed", actions: ["cancel"], seq: 5 });
    expect(patchTaskView(after, rows(taskRow({ seq: 4, status: "working" })))).toBe(after);
  });

  test("shows children as they begin and go on", () => {
    const child = taskRow({ id: "k", parentId: "t1", seq: 1 });
    const one = patchTaskView(taskView(), rows(child));
    const two = patchTaskView(one, rows({ ...child, seq: 2, status: "failed" }));
    expect(one.children.map((row) => row.id)).toEqual(["k"]);
    expect(two.children.map((row) => row.status)).toEqual(["failed"]);
  });
});

test("what waits no longer leaves the inbox", () => {
  const task = taskRow({ status: "input-required", waiting: "input", seq: 2 });
  const question = { id: "q", message: "m1", kind: "input" as const, text: "which?", since: minute(1), task, run: null, step: null, schema: null };
  const inbox = { items: [question], feed: 1 };
  expect(patchInbox(inbox, rows(task))).toBe(inbox);
  expect(patchInbox(inbox, rows({ ...task, status: "working", waiting: null, seq: 3 })).items).toEqual([]);
  const next = (id: string) => patchInbox(inbox, rows({ ...task, seq: 4, question: { id, text: "and then?", schema: null } })).items;
  expect([next("m1"), next("m2")]).toEqual([[question], []]);
});
