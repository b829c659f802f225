import { expect, it } from "vitest";
import { formatBytes } from "./bytes";

it("sizes have the largest unit that fits", () => {
  expect([0, 512, 2048, 3.5 * 1024 ** 2, 64 * 1024 ** 2, 2 * 1024 ** 3].map(formatBytes)).toEqual(["0 B", "512 B", "2 kB", "3.5 MB", "64 MB", "2.0 GB"]);
});
