import { afterEach, expect, test, vi } from "vitest";
import { address, api, ApiError, whenUnauthorized } from "./client";

function answer(status: number, body: unknown): void {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(body === null ? null : JSON.stringify(body), { status })));
}
const refused = () => api.get("/api/x").catch((error: unknown) => error as ApiError) as Promise<ApiError>;

afterEach(() => {
  vi.unstubAllGlobals();
});

test("lists repeat their name, and what is absent is left out", () => {
  expect(address("/api/tasks", { state: ["a", "b"], q: "", agent: undefined, top: 1 })).toBe("/api/tasks?state=a&state=b&top=1");
});

test("a refusal says what the server said, and about which fields", async () => {
  answer(422, { detail: "Not so", findings: [{ field: "amount", problem: "too much" }] });
  const error = await refused();
  expect(error).toBeInstanceOf(ApiError);
  expect([error.status, error.message]).toEqual([422, "Not so (amount: too much)"]);
});

test("an answer that is no JSON and no answer at all are errors of the same kind", async () => {
  vi.stubGlobal("fetch", () => Promise.resolve(new Response("<html>", { status: 502 })));
  expect((await refused()).status).toBe(502);
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("network")));
  expect(await refused()).toMatchObject({ status: 0, message: "The server cannot be reached" });
});

test("the shell hears of every 401", async () => {
  const heard = vi.fn();
  const stop = whenUnauthorized(heard);
  answer(401, { detail: "Who are you?" });
  await refused();
  stop();
  await refused();
  expect(heard).toHaveBeenCalledTimes(1);
});

test("nothing is undefined", async () => {
  answer(204, null);
  expect(await api.delete("/api/session")).toBeUndefined();
});
