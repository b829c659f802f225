import { Link } from "@tanstack/react-router";
import { ArrowRight, Bot } from "lucide-react";
import { useAgents } from "@/api/agents";
import { useServerUrl, useSession } from "@/api/session";
import type { AgentRow } from "@/api/types";
import { Command, EmptyState, ErrorState, Page, Section, SkeletonText, Tag } from "@/ui";
import { Storage } from "./Storage";
import { commandsOf, tourOf } from "./tour";
import { Tour } from "./Tour";

/** The first page: what is running, one button that shows it, and three commands worth knowing. */
export default function StartPage() {
  const session = useSession();
  const agents = useAgents();
  const items = agents.data?.items ?? [];
  const server = useServerUrl();
  const tour = tourOf(items);
  const first = items.find((agent) => agent.isDefault) ?? items[0];
  return (
    <Page title="Start">
      <div className="mx-auto flex max-w-[880px] flex-col gap-8">
        <header>
          <p className="text-lg text-soft">
            <span className="mr-2 inline-block size-2 rounded-full bg-green align-middle" aria-hidden />
            Accord {session.data?.version} is running at <code className="text-mono">{server}</code>
          </p>
        </header>
        {tour && <Tour tour={tour} />}
        <Section title={items.length === 1 ? "One agent is here" : `${items.length || "The"} agents are here`}>
          {agents.isPending && <SkeletonText lines={4} label="Loading the agents" />}
          {agents.isError && <ErrorState title="The agents could not be loaded" error={agents.error} safe="They keep working." onRetry={() => void agents.refetch()} />}
          {agents.data && items.length === 0 && <EmptyState icon={Bot} title="No agent is served" command="accord serve my_agent.py:agent" />}
          {items.length > 0 && (
            <ul className="overflow-hidden rounded-md border border-line">
              {items.map((agent) => (
                <AgentLine key={agent.slug} agent={agent} />
              ))}
            </ul>
          )}
        </Section>
        <Storage />
        <Section title="Three commands worth knowing">
          <ul className="flex flex-col gap-3">
            {commandsOf(server, first?.slug ?? "agent").map((command) => (
              <li key={command.text} className="flex flex-wrap items-center gap-x-4 gap-y-1">
                <span className="min-w-0 flex-1 basis-52 text-sm text-soft">{command.says}</span>
                <span className="min-w-0 flex-[2] basis-72">
                  <Command text={command.text} />
                </span>
              </li>
            ))}
          </ul>
        </Section>
      </div>
    </Page>
  );
}

function AgentLine({ agent }: { agent: AgentRow }) {
  return (
    <li className="border-line not-last:border-b">
      <Link to="/chat" search={{ agent: agent.slug }} className="group flex min-h-9 items-center gap-3 px-4 py-1.5 hover:bg-hover">
        <span className="flex min-w-0 flex-1 items-baseline gap-x-3 max-phone:flex-col">
          <span className="flex w-44 shrink-0 items-center gap-2 max-phone:w-auto">
            <span className="truncate text-sm font-medium">{agent.name}</span>
            {agent.isDefault && <Tag>default</Tag>}
            {agent.remote && <Tag>remote</Tag>}
            {agent.health.state === "down" && <Tag tone="red">not reachable</Tag>}
          </span>
          <span className="min-w-0 flex-1 truncate text-sm text-faint max-phone:w-full">{agent.description}</span>
        </span>
        <span className="shrink-0 text-xs text-faint opacity-0 max-phone:hidden transition-opacity duration-[120ms] group-hover:opacity-100 group-focus-visible:opacity-100">Talk to it</span>
        <ArrowRight className="size-4 shrink-0 text-faint" aria-hidden />
      </Link>
    </li>
  );
}
