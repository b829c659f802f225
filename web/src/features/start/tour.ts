import type { AgentRow } from "@/api/types";

/** The agent that shows most in one task, and what to tell it. */
export interface Tour {
  agent: AgentRow;
  text: string;
}

/** Those that ask for something on their way come first, because that is what one has to see. */
const TELLING = ["approval", "asks"];

/** Which agent the first task goes to: one that asks and streams if there is such, else any that says what to say. */
export function tourOf(agents: readonly AgentRow[]): Tour | null {
  const here = agents.filter((agent) => agent.health.state !== "down");
  const told = here.flatMap((agent) => agent.skills.map((skill) => ({ agent, skill })));
  const tagged = TELLING.flatMap((tag) => told.filter(({ skill }) => skill.tags.includes(tag)));
  const best = [...tagged, ...told].find(({ skill }) => skill.examples.length > 0);
  if (best?.skill.examples[0]) return { agent: best.agent, text: best.skill.examples[0] };
  const first = here.find((agent) => agent.isDefault) ?? here[0];
  return first ? { agent: first, text: "Hello" } : null;
}

/** Three commands worth knowing, with this server's own address. */
export function commandsOf(server: string, slug: string): { says: string; text: string }[] {
  return [
    { says: "Talk to an agent from a terminal", text: `accord chat ${server}/agents/${slug}` },
    { says: "Serve an agent of your own", text: "accord serve my_agent.py:agent" },
    { says: "Run a workflow, and watch its steps", text: "accord run flow.yaml" },
  ];
}
