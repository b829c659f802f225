import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { ArrowLeft } from "lucide-react";
import type { AgentView, Template } from "@/api/types";
import { EmptyState, ErrorState, Page, Select, SkeletonPage } from "@/ui";
import { Bench } from "./Bench";
import { dialectName } from "./look";
import { useAgent, useTemplates, type Templates } from "./queries";
import { BINDINGS, type InspectSearch } from "./search";

export default function InspectPage() {
  const { slug } = useParams({ from: "/console/agents/$slug/inspect" });
  const agent = useAgent(slug);
  const templates = useTemplates(slug);
  if (agent.isPending || templates.isPending) return <SkeletonPage />;
  const error = agent.error ?? templates.error;
  if (!agent.data || !templates.data) {
    return (
      <Page title="Inspector">
        <ErrorState title="The inspector could not be opened" error={error} safe="The agent keeps working." onRetry={() => void Promise.all([agent.refetch(), templates.refetch()])} />
      </Page>
    );
  }
  return <Inspector agent={agent.data} templates={templates.data} />;
}

const once = <T,>(values: readonly T[]): T[] => [...new Set(values)];

/** What the address chooses, as far as there is such a thing. */
export function chosen(items: readonly Template[], search: InspectSearch): Template | undefined {
  const spoken = items.filter((item) => item.dialect === search.dialect);
  const inDialect = spoken.length > 0 ? spoken : items.filter((item) => item.dialect === items[0]?.dialect);
  const bound = inDialect.filter((item) => item.binding === (search.binding ?? "JSONRPC"));
  const inBinding = bound.length > 0 ? bound : inDialect;
  return inBinding.find((item) => item.operation === search.operation) ?? inBinding[0];
}

function Inspector({ agent, templates }: { agent: AgentView; templates: Templates }) {
  const search = useSearch({ from: "/console/agents/$slug/inspect" });
  const navigate = useNavigate();
  const template = chosen(templates.items, search);
  const choose = (change: InspectSearch) => void navigate({ to: ".", search: (known) => ({ ...known, ...change }), replace: true });
  const title = (
    <span className="flex min-w-0 items-center gap-2">
      <Link to="/agents/$slug" params={{ slug: agent.slug }} aria-label={`Back to ${agent.name}`} className="text-faint hover:text-ink">
        <ArrowLeft className="size-4" aria-hidden />
      </Link>
      <span className="truncate">Inspect {agent.name}</span>
    </span>
  );
  if (!template) {
    return (
      <Page title={title}>
        <EmptyState title="This server speaks no dialect that the inspector knows" />
      </Page>
    );
  }
  const same = templates.items.filter((item) => item.dialect === template.dialect);
  const operations = same.filter((item) => item.binding === template.binding);
  return (
    <Page
      title={title}
      fill
      toolbar={
        <>
          <Select
            aria-label="Dialect"
            value={template.dialect}
            options={once(templates.items.map((item) => item.dialect)).map((value) => ({ value, label: dialectName(value) }))}
            onChange={(dialect) => choose({ dialect })}
          />
          <Select
            aria-label="Binding"
            value={template.binding}
            options={once(same.map((item) => item.binding)).map((value) => ({ value, label: value }))}
            onChange={(binding) => choose({ binding: BINDINGS.find((one) => one === binding) })}
          />
          <Select
            aria-label="Operation"
            className="min-w-0 max-phone:w-full"
            value={template.operation}
            options={operations.map((item) => ({ value: item.operation, label: item.label }))}
            onChange={(operation) => choose({ operation })}
          />
          {agent.remote?.includes("://") && (
            <Select
              aria-label="Where it is sent"
              value={search.at ?? ""}
              options={[
                { value: "", label: "Through this server" },
                { value: "remote", label: "To its own address" },
              ]}
              onChange={(at) => choose({ at: at === "remote" ? at : undefined })}
            />
          )}
        </>
      }
    >
      <Bench
        key={`${template.dialect} ${template.binding} ${template.operation}`}
        agent={agent}
        template={template}
        placeholder={templates.taskId}
        task={search.task}
        base={search.at === "remote" && agent.remote ? agent.remote : null}
        onTask={(task) => choose({ task })}
        onGo={(to) => choose(to)}
      />
    </Page>
  );
}
