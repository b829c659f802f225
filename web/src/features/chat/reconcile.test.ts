import { describe, expect, it } from "vitest";
import type { ChatMessage } from "./message";
import { ageOf, isCutOff, problemOf, reconcile } from "./reconcile";

const message = (id: string, text = id, role: ChatMessage["role"] = "user"): ChatMessage => ({ id, role, parts: [{ type: "text", text }] });

describe("what is shown of a chat at rest", () => {
  it("is what is stored", () => {
    expect(reconcile([], [message("a")])).toEqual([message("a")]);
    expect(reconcile([message("a", "half")], [message("a", "whole")])).toEqual([message("a", "whole")]);
  });

  it("keeps the identity of what is the same, so that nothing is drawn again", () => {
    const shown = message("a");
    expect(reconcile([shown], [message("a"), message("b")])[0]).toBe(shown);
  });

  it("loses no answer that is not stored yet", () => {
    const shown = [message("a"), message("b", "b", "assistant")];
    expect(reconcile(shown, [message("a")])).toEqual(shown);
  });

  it("takes over what another tab has answered again", () => {
    const stored = [message("a"), message("c", "c", "assistant")];
    expect(reconcile([message("a"), message("b", "b", "assistant")], stored)).toEqual(stored);
  });
});

it("an answer without an end was cut off", () => {
  expect(isCutOff(message("a"))).toBe(false);
  expect(isCutOff(message("b", "b", "assistant"))).toBe(true);
  expect(isCutOff({ ...message("b", "b", "assistant"), metadata: { finishReason: "stop" } })).toBe(false);
  expect(isCutOff(undefined)).toBe(false);
});

it("chats are put under the day they belong to", () => {
  const now = new Date(2026, 5, 15, 12);
  expect(ageOf(new Date(2026, 5, 15, 1).toISOString(), now)).toBe("Today");
  expect(ageOf(new Date(2026, 5, 14, 23).toISOString(), now)).toBe("Yesterday");
  expect(ageOf(new Date(2026, 5, 10).toISOString(), now)).toBe("Last 7 days");
  expect(ageOf(new Date(2026, 3, 1).toISOString(), now)).toBe("Earlier");
});

it("does not claim that an agent is at work that may have been killed", () => {
  const lost = new TypeError("Failed to fetch");
  expect(problemOf(lost, true)).toBe("The connection was lost. The rest of the answer appears here when the server is reachable again.");
  expect(problemOf(lost, false)).toContain("may not have arrived");
  expect(problemOf(new Error('{"detail": "No such agent"}'), false)).toBe("No such agent");
  expect(problemOf(undefined, false)).toBe("Something went wrong.");
});
