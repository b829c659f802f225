import { expect, test } from "vitest";
import { tasksSearch } from "@/features/tasks/search";
import { readSearch, writeSearch } from "./search";

test("filters are written so that people can read them, and read back the same", () => {
  const search = tasksSearch({ state: ["failed", "rejected"], q: "a & b", top: true, agent: undefined });
  const query = writeSearch({ ...search });
  expect(query).toBe("?state=failed,rejected&q=a+%26+b&top=1");
  expect(tasksSearch(readSearch(query))).toEqual(search);
});

test("what an address says that no page understands is left out", () => {
  expect(tasksSearch(readSearch("?state=dreaming&since=ever&q="))).toEqual(tasksSearch({}));
});
