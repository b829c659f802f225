import { useMatch } from "@tanstack/react-router";
import type { TasksSearch } from "./search";

/** The filters of the list beside the canvas, so that going from task to task keeps them; none inside other pages. */
export function useKeptSearch(): TasksSearch {
  return useMatch({ from: "/console/tasks", shouldThrow: false })?.search ?? {};
}
