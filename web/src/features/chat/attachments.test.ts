import { expect, it } from "vitest";
import { chosen, MAX_BYTES, MAX_FILES, readFile } from "./attachments";

const file = (name: string, size: number) => ({ name, size });

it("files are taken as long as there is room for them", () => {
  const { taken, refusals } = chosen([file("a", MAX_BYTES - 10), file("b", 20), file("c", 5)], [{ size: 2 }]);
  expect(taken).toEqual([0, 2]);
  expect(refusals).toEqual(["b: all files together may have 10 MB"]);
});

it("not more than some are taken", () => {
  const present = Array.from({ length: MAX_FILES }, () => ({ size: 1 }));
  expect(chosen([file("a", 1)], present)).toEqual({ taken: [], refusals: [`a: at most ${MAX_FILES} files`] });
});

it("a file becomes an address with its bytes", async () => {
  const read = await readFile(new File(["hi"], "hi.txt", { type: "text/plain" }));
  expect(read).toMatchObject({ name: "hi.txt", mediaType: "text/plain", size: 2, url: "data:text/plain;base64,aGk=" });
});
