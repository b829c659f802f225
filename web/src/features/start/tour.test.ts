import { expect, it } from "vitest";
import type { AgentRow } from "@/api/types";
import { agentRow } from "@/testing/rows";
import { commandsOf, tourOf } from "./tour";

const agent = (slug: string, tags: string[], examples: string[], state: AgentRow["health"]["state"] = "up"): AgentRow =>
  agentRow(slug, {
    isDefault: slug === "echo",
    health: { state, detail: null, checkedAt: null },
    skills: [{ id: slug, name: slug, description: "", tags, examples, schema: null }],
  });

it("the first task goes to an agent that asks something, if there is one", () => {
  const agents = [agent("echo", [], []), agent("reporter", ["report"], ["Report"]), agent("billing", ["asks"], ["Refund"]), agent("releases", ["approval"], ["Deploy"])];
  expect(tourOf(agents)).toMatchObject({ agent: { slug: "releases" }, text: "Deploy" });
  expect(tourOf(agents.slice(0, 2))).toMatchObject({ agent: { slug: "reporter" }, text: "Report" });
  expect(tourOf(agents.slice(0, 1))).toMatchObject({ agent: { slug: "echo" }, text: "Hello" });
});

it("nobody is asked who cannot be reached", () => {
  expect(tourOf([agent("releases", ["approval"], ["Deploy"], "down")])).toBeNull();
});

it("commands name this server", () => {
  expect(commandsOf("http://localhost:8000", "echo")[0]?.text).toBe("accord chat http://localhost:8000/agents/echo");
});
