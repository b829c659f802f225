import { act, fireEvent, render, screen } from "@testing-library/react";
import { useEffect } from "react";
import { expect, test, vi } from "vitest";
import { Decision } from "./Decision";
import { listenForShortcuts } from "./shortcuts";

function Listening({ onDecide, keysOf }: { onDecide: (approved: boolean, comment: string) => Promise<unknown>; keysOf?: string }) {
  useEffect(listenForShortcuts, []);
  return <Decision busy={false} onDecide={onDecide} keysOf={keysOf} />;
}
const labels = () => screen.getAllByRole("button").map((button) => button.textContent);

test("Approve comes first, and the comment goes along", () => {
  const decide = vi.fn(async () => undefined);
  render(<Listening onDecide={decide} />);
  expect(labels()).toEqual(["Approve", "Reject"]);
  fireEvent.change(screen.getByLabelText("Comment"), { target: { value: " not on a Friday " } });
  // In a form, Enter would press a button: that of a yes, while one writes why not.
  expect(screen.getByLabelText("Comment").closest("form")).toBeNull();
  fireEvent.click(screen.getByRole("button", { name: "Reject" }));
  fireEvent.click(screen.getByRole("button", { name: "Approve" }));
  expect(decide).toHaveBeenCalledExactlyOnceWith(false, "not on a Friday");
});

test("after a refusal one may decide again", async () => {
  const decide = vi.fn(() => Promise.reject(new Error("somebody was quicker")));
  render(<Listening onDecide={decide} />);
  await act(async () => {
    fireEvent.click(screen.getByRole("button", { name: "Approve" }));
  });
  expect(screen.getByRole("button", { name: "Approve" })).toHaveProperty("disabled", false);
});

test("letters decide only where they are said to", () => {
  const decide = vi.fn(async () => undefined);
  const { rerender } = render(<Listening onDecide={decide} />);
  fireEvent.keyDown(document.body, { key: "x" });
  expect(decide).not.toHaveBeenCalled();
  rerender(<Listening onDecide={decide} keysOf="Inbox" />);
  fireEvent.keyDown(document.body, { key: "x" });
  expect(decide).toHaveBeenCalledExactlyOnceWith(false, "");
});
