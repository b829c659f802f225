import { fireEvent, render, screen } from "@testing-library/react";
import { useEffect } from "react";
import { expect, test, vi } from "vitest";
import { listenForShortcuts } from "./shortcuts";
import { Table } from "./Table";

interface Row {
  id: string;
}
const COLUMNS = [{ id: "id", header: "Id", width: "1fr", isName: true as const, cell: (row: Row) => row.id }];
const many = (...ids: string[]): Row[] => ids.map((id) => ({ id }));

function Listening({ rows, onOpen }: { rows: Row[]; onOpen?: (row: Row) => void }) {
  useEffect(listenForShortcuts, []);
  return <Table label="Things" rows={rows} columns={COLUMNS} rowKey={(row) => row.id} onOpen={onOpen} still />;
}
const rowTexts = () => screen.getAllByRole("row").slice(1).map((row) => row.textContent);

test("j and k move, Enter opens", () => {
  const open = vi.fn();
  render(<Listening rows={many("a", "b", "c")} onOpen={open} />);
  for (const key of ["j", "j", "j", "k", "Enter"]) fireEvent.keyDown(document.body, { key });
  expect(open).toHaveBeenCalledExactlyOnceWith({ id: "b" });
});

test("letters that are typed into a field do nothing to the list", () => {
  const open = vi.fn();
  render(
    <>
      <input aria-label="elsewhere" />
      <Listening rows={many("a")} onOpen={open} />
    </>,
  );
  for (const key of ["j", "Enter"]) fireEvent.keyDown(screen.getByLabelText("elsewhere"), { key });
  expect(open).not.toHaveBeenCalled();
});

test("while one has scrolled down, new rows wait behind a pill", () => {
  const { rerender } = render(<Listening rows={many("a", "b")} />);
  const table = screen.getByRole("table");
  table.scrollTop = 200;
  fireEvent.scroll(table);
  rerender(<Listening rows={many("new", "a", "b")} />);
  expect(rowTexts()).toEqual(["a", "b"]);
  table.scrollTo = () => undefined;
  fireEvent.click(screen.getByRole("button", { name: "1 new" }));
  expect(rowTexts()).toEqual(["new", "a", "b"]);
});

test("the name of a row is a link: a plain click opens it in place, others are the browser's", () => {
  const open = vi.fn();
  render(<Table label="Things" rows={many("a", "b")} columns={COLUMNS} rowKey={(row) => row.id} onOpen={open} href={(row) => `#${row.id}`} />);
  const link = screen.getByRole("link", { name: "b" });
  expect(link.getAttribute("href")).toBe("#b");
  // `false` says that the browser is kept from following the link itself.
  expect(fireEvent.click(link)).toBe(false);
  expect(open).toHaveBeenCalledExactlyOnceWith({ id: "b" });
  const newTab = vi.spyOn(window, "open");
  expect(fireEvent.click(link, { ctrlKey: true })).toBe(true);
  expect(open).toHaveBeenCalledOnce();
  expect(newTab).not.toHaveBeenCalled();
});
