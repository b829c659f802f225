import { expect, test } from "vitest";
import { defaultsOf, kindOf, problemsOf, type JsonSchema } from "./schema";

const REFUND: JsonSchema = {
  type: "object",
  properties: {
    account: { type: "string", enum: ["Acme", "Blue"] },
    amount: { type: "number", minimum: 1, maximum: 500, default: 25 },
    count: { type: "integer" },
    note: { type: ["string", "null"], maxLength: 5 },
    tags: { type: "array", items: { type: "string" } },
    where: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
  required: ["account", "amount"],
};

test("each kind of schema has its control, and JSON is for the rest", () => {
  const kinds = Object.values(REFUND.properties ?? {}).map(kindOf);
  expect(kinds).toEqual(["enum", "number", "number", "string", "strings", "object"]);
  expect([kindOf({}), kindOf({ type: "array", items: { type: "object" } }), kindOf({ type: "object" })]).toEqual(["json", "json", "json"]);
});

test("a form begins with the defaults and nothing else", () => {
  expect(defaultsOf(REFUND)).toEqual({ amount: 25, where: {} });
});

test("problems are told by the path of their field", () => {
  const value = { amount: 501, count: 1.5, note: "too long", tags: "x", where: {} };
  expect(problemsOf(REFUND, value)).toEqual({
    account: "Required",
    amount: "Must be at most 500",
    count: "Must be a whole number",
    note: "Takes at most 5 characters",
    tags: "Must be a list",
    "where.city": "Required",
  });
  expect(problemsOf(REFUND, { account: "Acme", amount: 5 })).toEqual({});
  expect(problemsOf(REFUND, "text")).toEqual({ "": "Must be an object" });
});
