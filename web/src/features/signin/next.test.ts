import { describe, expect, it } from "vitest";
import { addressOf, pageOf } from "./next";

describe("the page after signing in", () => {
  it("is the one that somebody wanted to see", () => {
    expect(pageOf("/tasks/1?state=failed")).toBe("/tasks/1?state=failed");
    expect(pageOf("/console/tasks")).toBe("/tasks");
    expect(addressOf(pageOf(undefined))).toBe("/console/");
  });

  it.each(["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "/a/../../x", "/a//b", "", "/signin", "/ x"])("is never elsewhere: %s", (next) => {
    expect(pageOf(next)).toBe("/");
  });
});
