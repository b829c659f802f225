import { replaceEqualDeep } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import { beforeEach, expect, it, vi } from "vitest";
import type { StepView } from "@/api/types";
import Graph from "./Graph";
import * as graph from "./graph";
import * as look from "./look";
import { step } from "./testing";

const layouts = vi.spyOn(graph, "layoutsOf");
const cards = vi.spyOn(look, "TypeIcon");

const LAYERS = 20;
const WIDTH = 10;

/** A run of 200 steps of which the first ones are completed, as it comes out of an answer: all of it is new. */
const run = (completed: number): StepView[] =>
  Array.from({ length: LAYERS * WIDTH }, (_, at) =>
    step(`s${at}`, {
      needs: at < WIDTH ? [] : [0, 1, 3].map((by) => `s${(Math.floor(at / WIDTH) - 1) * WIDTH + ((at + by) % WIDTH)}`),
      status: at < completed ? "completed" : "pending",
    }),
  );

const nothing = () => undefined;
/** Jsdom takes seconds to make 200 cards on a busy machine. */
const BOUND = { timeout: 60_000 };

beforeEach(() => vi.clearAllMocks());

it("draws one card and lays out nothing for an event about one of 200 steps", BOUND, () => {
  let steps = run(0);
  const shown = render(<Graph steps={steps} selected={null} onSelect={nothing} />);
  expect(shown.container.querySelectorAll("[data-step]")).toHaveLength(200);
  expect(layouts).toHaveBeenCalledTimes(1);
  cards.mockClear();
  for (let completed = 1; completed <= 5; completed += 1) {
    steps = replaceEqualDeep(steps, run(completed)); // as the query keeps what did not change
    shown.rerender(<Graph steps={steps} selected={null} onSelect={nothing} />);
    expect(cards).toHaveBeenCalledTimes(completed);
  }
  expect(layouts).toHaveBeenCalledTimes(1);
  expect(shown.container.querySelectorAll('[data-status="completed"]')).toHaveLength(5);
});

it("draws two cards when another step is selected", BOUND, () => {
  const steps = run(3);
  const shown = render(<Graph steps={steps} selected="s1" onSelect={nothing} />);
  cards.mockClear();
  shown.rerender(<Graph steps={steps} selected="s2" onSelect={nothing} />);
  expect(cards).toHaveBeenCalledTimes(2);
  expect(layouts).toHaveBeenCalledTimes(1);
});
