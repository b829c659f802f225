import { act, fireEvent, render, screen, within } from "@testing-library/react";
import { useEffect } from "react";
import { expect, test, vi } from "vitest";
import { Decision } from "./Decision";
import { listenForShortcuts } from "./shortcuts";

function Listening({ onDecide, keys }: { onDecide: (approved: boolean, comment: string) => Promise<unknown>; keys?: { group: string; subject: string } }) {
  useEffect(listenForShortcuts, []);
  return <Decision busy={false} onDecide={onDecide} keys={keys} />;
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

test("a letter asks before it decides, and only for a selected decision", () => {
  const decide = vi.fn(async () => undefined);
  const { rerender } = render(<Listening onDecide={decide} />);
  fireEvent.keyDown(document.body, { key: "x" });
  expect(screen.queryByRole("dialog")).toBeNull();
  rerender(<Listening onDecide={decide} keys={{ group: "Inbox", subject: "Deploy 3.1" }} />);
  fireEvent.keyDown(document.body, { key: "x", repeat: true });
  expect(screen.queryByRole("dialog")).toBeNull();
  fireEvent.keyDown(document.body, { key: "x" });
  const dialog = screen.getByRole("dialog", { name: 'Reject "Deploy 3.1"?' });
  expect(decide).not.toHaveBeenCalled();
  fireEvent.click(within(dialog).getByRole("button", { name: "Reject" }));
  expect(decide).toHaveBeenCalledExactlyOnceWith(false, "");
});
