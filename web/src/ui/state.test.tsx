import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { isEnded, isWaiting, StateBadge, StateDot, TASK_STATES } from "./state";

test.each(TASK_STATES)("%s has a mark and a word", (state) => {
  const { container } = render(<StateBadge state={state} />);
  const badge = container.querySelector(`[data-state="${state}"]`);
  expect(badge?.textContent?.toLowerCase()).toContain(state.split("-")[0]);
  expect(badge?.querySelector("[aria-hidden]")).toBeTruthy();
});

test("the mark alone has a name", () => {
  render(<StateDot state="input-required" />);
  expect(screen.getByRole("img", { name: "Input required" })).toBeTruthy();
});

test("a state that this build does not know is unknown, not nothing", () => {
  render(<StateBadge state="dreaming" />);
  expect(screen.getByText("Unknown")).toBeTruthy();
});

test("states end or wait", () => {
  expect(TASK_STATES.filter(isEnded)).toEqual(["completed", "canceled", "failed", "rejected"]);
  expect(TASK_STATES.filter(isWaiting)).toEqual(["input-required", "auth-required"]);
});
