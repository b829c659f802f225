import { expect, test } from "vitest";
import { settle } from "./settle";

interface Row {
  id: string;
  text?: string;
}
const key = (row: Row) => row.id;
const of = (...ids: string[]): Row[] => ids.map((id) => ({ id }));

test("new rows above wait, older pages below come, rows that are gone go", () => {
  const settled = settle(["b", "c", "d"], of("new1", "new2", "b", "d", "e", "f"), key);
  expect(settled.rows.map(key)).toEqual(["b", "d", "e", "f"]);
  expect(settled.waiting).toBe(2);
});

test("rows on screen show what they now are", () => {
  expect(settle(["a"], [{ id: "a", text: "done" }], key)).toEqual({ rows: [{ id: "a", text: "done" }], waiting: 0 });
});

test("a list of which nothing is left is shown as it is", () => {
  expect(settle(["x"], of("a", "b"), key)).toEqual({ rows: of("a", "b"), waiting: 0 });
});
