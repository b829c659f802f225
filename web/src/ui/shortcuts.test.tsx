import { fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { listenForShortcuts, useShortcut } from "./shortcuts";

let stop = () => undefined as void;
beforeEach(() => {
  stop = listenForShortcuts();
});
afterEach(() => stop());

function Opens({ onOpen }: { onOpen: () => void }) {
  useShortcut({ keys: "Enter", label: "Open the row", group: "List" }, onOpen);
  return (
    <>
      <button type="button">Retry</button>
      <p>Row</p>
    </>
  );
}

test("Enter belongs to the button that has the focus", () => {
  const open = vi.fn();
  render(<Opens onOpen={open} />);
  // `false` would say that the browser was kept from pressing the button.
  expect(fireEvent.keyDown(screen.getByRole("button"), { key: "Enter" })).toBe(true);
  expect(open).not.toHaveBeenCalled();
  fireEvent.keyDown(screen.getByText("Row"), { key: "Enter" });
  expect(open).toHaveBeenCalledOnce();
});
