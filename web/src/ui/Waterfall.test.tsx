import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { Waterfall, type WaterfallRow } from "./Waterfall";

const ROWS: WaterfallRow[] = [
  { id: "a", label: "build", bars: [{ start: 0, end: 1000, tone: "red", label: "attempt 1, failed" }, { start: 1000, end: 3000, tone: "green", label: "attempt 2" }] },
  { id: "b", label: "test", depth: 1, bars: [] },
];

test("each row says what it is, and attempts are bars of their own", () => {
  render(<Waterfall label="Run" rows={ROWS} />);
  const first = screen.getByRole("option", { name: "build, attempt 1, failed, attempt 2, 3.0 s" });
  expect(first.querySelectorAll("[title]")).toHaveLength(3);
  expect(screen.getByRole("option", { name: /test, not begun/ })).toBeTruthy();
});

test("arrow keys move the selection and stop at the ends", () => {
  const select = vi.fn();
  const { rerender } = render(<Waterfall label="Run" rows={ROWS} selected="a" onSelect={select} />);
  fireEvent.keyDown(screen.getByRole("listbox"), { key: "ArrowDown" });
  expect(select).toHaveBeenLastCalledWith("b");
  rerender(<Waterfall label="Run" rows={ROWS} selected="b" onSelect={select} />);
  fireEvent.keyDown(screen.getByRole("listbox"), { key: "ArrowDown" });
  expect(select).toHaveBeenLastCalledWith("b");
});
