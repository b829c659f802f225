import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { RefreshCw, SquareTerminal } from "lucide-react";
import type { ReactNode } from "react";
import { ApiError, pageUrl } from "@/api/client";
import { useSession } from "@/api/session";
import type { AgentView } from "@/api/types";
import { usePaletteAction } from "@/app/actions";
import { Button, CopyButton, CopyMenu, EmptyState, ErrorState, Notice, Panel, Select, SkeletonPanel, Tabs, Tag, Time, JsonView } from "@/ui";
import { pythonFor } from "../tasks/calls";
import { CardFacts } from "./CardFacts";
import { Findings } from "./Findings";
import { dialectName, HealthBadge } from "./look";
import { useAgent, useCheck } from "./queries";
import { curl } from "./request";
import { TABS } from "./search";
import { Skills } from "./Skills";

export default function AgentDetail() {
  const { slug } = useParams({ from: "/console/agents/$slug" });
  const { tab: _tab, dialect: _dialect, ...search } = useSearch({ from: "/console/agents" });
  const navigate = useNavigate();
  const agent = useAgent(slug);
  const isOpen = useSession().data?.isOpen ?? true;
  const inspect = () => void navigate({ to: "/agents/$slug/inspect", params: { slug } });
  usePaletteAction({ id: `inspect-${slug}`, label: `Inspect ${agent.data?.name ?? slug}`, group: "Agent" }, inspect);
  const actions = agent.data && (
    <>
      <Button size="small" icon={<SquareTerminal className="size-3.5" aria-hidden />} onClick={inspect}>
        Inspect
      </Button>
      <CopyMenu id={slug} path={pageUrl(`/agents/${encodeURIComponent(slug)}`)} curl={cardCurl(agent.data)} python={pythonFor(agent.data.url.replace(/\/$/, ""), isOpen, 'print(client.send_text("Hello").text)')} />
    </>
  );
  const title = agent.data && (
    <span className="flex min-w-0 items-center gap-2.5">
      <span className="truncate">{agent.data.name}</span>
      <HealthBadge health={agent.data.health} />
    </span>
  );
  return (
    <Panel label="Agent" title={title} actions={actions} onClose={() => void navigate({ to: "/agents", search })}>
      {agent.data ? (
        <Shown agent={agent.data} />
      ) : agent.error instanceof ApiError && agent.error.status === 404 ? (
        <EmptyState title="There is no such agent">It may not be served any more, or it is not for you.</EmptyState>
      ) : agent.isError ? (
        <ErrorState title="The agent could not be loaded" error={agent.error} safe="It keeps working." onRetry={() => void agent.refetch()} />
      ) : (
        <SkeletonPanel />
      )}
    </Panel>
  );
}

function cardCurl(agent: AgentView): string {
  return curl({ url: `${agent.url.replace(/\/$/, "")}/.well-known/agent-card.json`, method: "GET", headers: {}, body: "", streams: false });
}

function Shown({ agent }: { agent: AgentView }) {
  const search = useSearch({ from: "/console/agents" });
  const navigate = useNavigate();
  const grave = agent.findings.filter((finding) => finding.severity !== "info").length;
  return (
    <div className="flex flex-col gap-5 p-5">
      {agent.health.state === "down" && <Down agent={agent} />}
      {agent.description && <p className="text-soft">{agent.description}</p>}
      <Facts agent={agent} />
      <Tabs
        label="About the agent"
        selected={search.tab ?? "skills"}
        onSelect={(tab) => void navigate({ to: ".", search: (known) => ({ ...known, tab: TABS.find((name) => name === tab) }), replace: true })}
        tabs={[
          { id: "skills", label: "Skills", count: agent.skills.length, content: <Skills agent={agent} /> },
          { id: "findings", label: grave > 0 ? "Findings" : "Notes", count: agent.findings.length, content: <Findings findings={agent.findings} /> },
          { id: "card", label: "Card", content: <Card agent={agent} /> },
        ]}
      />
    </div>
  );
}

/** What is known of an agent elsewhere that does not answer, and what is safe. */
function Down({ agent }: { agent: AgentView }) {
  return (
    <Notice tone="red">
      <p>{agent.health.detail ?? "It does not answer."}</p>
      <p className="mt-1 text-soft">Tasks for it are kept and sent when it is back.</p>
    </Notice>
  );
}

function Facts({ agent }: { agent: AgentView }) {
  return (
    <dl className="grid grid-cols-[88px_1fr] gap-x-4 gap-y-1.5 text-sm">
      <Fact name="Address">
        <code className="min-w-0 break-all">{agent.url}</code>
        <CopyButton text={agent.url} label="Copy the address" />
      </Fact>
      {agent.remote && (
        <Fact name="Elsewhere">
          <code className="min-w-0 break-all">{agent.remote}</code>
          <Check agent={agent} />
        </Fact>
      )}
      <Fact name="Kind">
        {agent.kind}, version {agent.version}
      </Fact>
      <Fact name="Speaks">
        <span className="flex flex-wrap gap-1">
          {[...agent.bindings, ...agent.dialects.map(dialectName)].map((word) => (
            <Tag key={word}>{word}</Tag>
          ))}
        </span>
      </Fact>
      <Fact name="Tasks">
        {agent.rate} a minute,&nbsp;
        <Link to="/tasks" search={{ agent: agent.slug }} className="link">
          {agent.open} open
        </Link>
      </Fact>
    </dl>
  );
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  return (
    <>
      <dt className="leading-6 text-faint">{name}</dt>
      <dd className="flex min-h-6 min-w-0 items-center gap-1">{children}</dd>
    </>
  );
}

function Check({ agent }: { agent: AgentView }) {
  const check = useCheck(agent.slug);
  return (
    <>
      <Button kind="ghost" size="small" busy={check.isPending} icon={<RefreshCw className="size-3.5" aria-hidden />} onClick={() => check.mutate()}>
        Check
      </Button>
      {agent.health.checkedAt && <Time at={agent.health.checkedAt} className="text-xs text-faint" />}
    </>
  );
}

function Card({ agent }: { agent: AgentView }) {
  const search = useSearch({ from: "/console/agents" });
  const navigate = useNavigate();
  const names = Object.keys(agent.cards);
  const chosen = search.dialect !== undefined && search.dialect in agent.cards ? search.dialect : (names[0] ?? "");
  return (
    <div className="flex flex-col gap-5">
      <CardFacts card={agent.cards.v1 ?? agent.cards.public ?? {}} />
      <div className="flex flex-col gap-2">
        <Select
          aria-label="Card as written for"
          className="self-start"
          value={chosen}
          options={names.map((name) => ({ value: name, label: dialectName(name) }))}
          onChange={(dialect) => void navigate({ to: ".", search: (known) => ({ ...known, dialect: dialect === names[0] ? undefined : dialect }), replace: true })}
        />
        <JsonView key={chosen} value={agent.cards[chosen]} />
      </div>
    </div>
  );
}
