import { expect, test } from "vitest";
import { artifactsOf, messagesOf, plainText, readParts } from "./a2a";

test("pieces of a streamed text are one text; other types and files keep apart", () => {
  const parts = readParts([
    { text: "# ", mediaType: "text/markdown" },
    { text: "Title", mediaType: "text/Markdown" },
    { text: "print()", mediaType: "text/x-python" },
    { url: "/api/tasks/1/files/a/0", filename: "a.png", mediaType: "image/png" },
    { data: { a: 1 } },
  ]);
  expect(parts.map((part) => part.text ?? part.url ?? part.data)).toEqual(["# Title", "print()", "/api/tasks/1/files/a/0", { a: 1 }]);
  expect(plainText(parts)).toBe("# Title\nprint()");
});

test("the current message is the last of the history unless it is there already", () => {
  const asked = { messageId: "m2", role: "ROLE_AGENT", parts: [{ text: "which?" }] };
  const said = { messageId: "m1", role: "ROLE_USER", parts: [{ text: "do it" }] };
  const ids = (history: unknown[]) => messagesOf({ history, status: { message: asked } }).map((message) => message.id);
  expect(ids([said])).toEqual(["m1", "m2"]);
  expect(ids([said, asked])).toEqual(["m1", "m2"]);
});

test("whatever an agent sends can be read", () => {
  expect(artifactsOf({ artifacts: [null, 3, { parts: "none" }] })).toEqual([{ id: "", name: "", description: "", parts: [] }]);
  expect(messagesOf({ status: "odd", history: { not: "a list" } })).toEqual([]);
});

test("marks that turn the direction of writing are shown", () => {
  expect(readParts([{ url: "/x", filename: "report\u202Egnp.exe" }])[0]?.filename).toBe("report\uFFFDgnp.exe");
});
