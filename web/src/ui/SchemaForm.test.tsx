import { fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { expect, test } from "vitest";
import type { JsonSchema } from "./schema";
import { SchemaForm } from "./SchemaForm";

const SCHEMA: JsonSchema = {
  type: "object",
  properties: {
    account: { type: "string", title: "Account", enum: ["Acme", "Blue"] },
    amount: { type: "number", title: "Amount" },
    tell: { type: "boolean", title: "Tell them" },
    tags: { type: "array", title: "Tags", items: { type: "string" } },
  },
};

function Harness({ start }: { start: unknown }) {
  const [value, setValue] = useState(start);
  return (
    <>
      <SchemaForm schema={SCHEMA} value={value} onChange={setValue} problems={{ amount: "Required" }} />
      <output>{JSON.stringify(value)}</output>
    </>
  );
}
const shown = () => JSON.parse(screen.getByRole("status").textContent ?? "");

test("what is filled in becomes typed values", () => {
  render(<Harness start={{}} />);
  fireEvent.change(screen.getByLabelText("Account"), { target: { value: "1" } });
  fireEvent.change(screen.getByLabelText("Amount"), { target: { value: "12.5" } });
  fireEvent.click(screen.getByLabelText("Tell them"));
  fireEvent.change(screen.getByLabelText("Tags"), { target: { value: "one\ntwo" } });
  expect(shown()).toEqual({ account: "Blue", amount: 12.5, tell: true, tags: ["one", "two"] });
});

test("a field that is emptied is left out", () => {
  render(<Harness start={{ amount: 3 }} />);
  fireEvent.change(screen.getByLabelText("Amount"), { target: { value: "" } });
  expect(shown()).toEqual({});
});

test("a problem is tied to its field", () => {
  render(<Harness start={{}} />);
  const amount = screen.getByLabelText("Amount");
  expect(amount.getAttribute("aria-invalid")).toBe("true");
  expect(document.getElementById(amount.getAttribute("aria-describedby") ?? "")?.textContent).toBe("Required");
});

test("as JSON the same value is edited; text that is no JSON changes nothing", () => {
  render(<Harness start={{ amount: 3 }} />);
  fireEvent.click(screen.getByRole("button", { name: "Edit as JSON" }));
  const area = screen.getByLabelText("JSON");
  expect(JSON.parse((area as HTMLTextAreaElement).value)).toEqual({ amount: 3 });
  fireEvent.change(area, { target: { value: '{"amount": 4' } });
  expect(shown()).toEqual({ amount: 3 });
  fireEvent.change(area, { target: { value: '{"amount": 4}' } });
  expect(shown()).toEqual({ amount: 4 });
});
