import { expect, it } from "vitest";
import type { Model } from "@/api/types";
import { promptsOf } from "./prompts";

const model = (id: string, examples: string[], isDefault = false): Model => ({ id, name: id, description: "", mode: "stream", isDefault, examples });

it("one example of each agent, three at most, the default agent last", () => {
  const prompts = promptsOf([model("d", ["hi"], true), model("a", ["1", "2"]), model("b", []), model("c", ["3"]), model("e", ["4"])]);
  expect(prompts.map(({ prompt, model: { id } }) => [prompt, id])).toEqual([["1", "a"], ["3", "c"], ["4", "e"]]);
});

it("there is always something to say", () => {
  expect(promptsOf([model("a", [], true)]).map(({ prompt }) => prompt)).toEqual(["Hello, what can you do?"]);
  expect(promptsOf([])).toEqual([]);
});
