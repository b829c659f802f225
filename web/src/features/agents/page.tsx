import { Outlet, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Bot } from "lucide-react";
import { pageUrl } from "@/api/client";
import { useAgents } from "@/api/agents";
import type { AgentRow } from "@/api/types";
import { EmptyState, ErrorState, Page, SearchInput, SkeletonRows, Table, Tag, type Column } from "@/ui";
import { dialectName, dialectsShort, HealthBadge } from "./look";

const COLUMNS: readonly Column<AgentRow>[] = [
  { id: "health", header: "Health", width: "76px", cell: (row) => <HealthBadge health={row.health} /> },
  { id: "name", header: "Agent", isName: true, width: "minmax(140px, 1.2fr)", cell: (row) => <Name row={row} /> },
  { id: "description", header: "What it does", width: "minmax(120px, 2fr)", cell: (row) => <span className="text-soft">{row.description}</span>, from: 720 },
  { id: "kind", header: "Kind", width: "92px", cell: (row) => row.kind, from: 560 },
  { id: "bindings", header: "Bindings", width: "150px", cell: (row) => <span className="text-soft">{row.bindings.join(", ")}</span>, from: 940 },
  { id: "dialects", header: "Dialects", width: "84px", cell: (row) => <Dialects row={row} />, from: 860 },
  { id: "rate", header: "Tasks/min", width: "72px", align: "right", cell: (row) => <Number of={row.rate} />, from: 480 },
  { id: "open", header: "Open", width: "44px", align: "right", cell: (row) => <Number of={row.open} /> },
];

function Name({ row }: { row: AgentRow }) {
  return (
    <span className="flex min-w-0 items-center gap-2">
      <span className="truncate font-medium">{row.name}</span>
      {row.isDefault && <Tag title="It answers at the root of this server as well">default</Tag>}
      {row.remote && <Tag title={row.remote}>remote</Tag>}
    </span>
  );
}

function Dialects({ row }: { row: AgentRow }) {
  return <span className="text-soft" title={row.dialects.map(dialectName).join(", ")}>{dialectsShort(row.dialects)}</span>;
}

const Number = ({ of }: { of: number }) => <span className={of === 0 ? "text-faint" : undefined}>{of}</span>;

function fits(row: AgentRow, q: string): boolean {
  const words = [row.name, row.slug, row.description, row.kind, ...row.skills.flatMap((skill) => [skill.name, ...skill.tags])];
  return words.join("\n").toLowerCase().includes(q.toLowerCase());
}

export default function AgentsPage() {
  const search = useSearch({ from: "/console/agents" });
  const { slug } = useParams({ strict: false });
  const navigate = useNavigate();
  const list = useAgents();
  const rows = (list.data?.items ?? []).filter((row) => fits(row, search.q ?? ""));
  return (
    <Page
      title="Agents"
      fill
      panel={<Outlet />}
      count={list.data && `${rows.length} ${rows.length === 1 ? "agent" : "agents"}`}
      toolbar={
        <SearchInput
          label="Find an agent or a skill"
          className="w-64 max-phone:w-full"
          value={search.q ?? ""}
          onChange={(event) => void navigate({ to: ".", search: (known) => ({ ...known, q: event.target.value || undefined }), replace: true })}
        />
      }
    >
      {list.isPending ? (
        <SkeletonRows label="Loading agents" rows={5} />
      ) : list.isError ? (
        <ErrorState title="The agents could not be loaded" error={list.error} safe="They keep working." onRetry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <Nothing isFiltered={list.data.items.length > 0} />
      ) : (
        <Table
          label="Agents"
          rows={rows}
          columns={COLUMNS}
          rowKey={(row) => row.slug}
          selected={slug ?? null}
          href={(row) => pageUrl(`/agents/${encodeURIComponent(row.slug)}`)}
          onOpen={(row) => void navigate({ to: "/agents/$slug", params: { slug: row.slug }, search })}
        />
      )}
    </Page>
  );
}

function Nothing({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <EmptyState icon={Bot} title="No agent or skill is called so" />;
  return (
    <EmptyState icon={Bot} title="There is no agent that you may use" command="accord serve module:agent">
      Anything that a kind of agent recognises can be served: a function, a graph, a process, an agent elsewhere.
    </EmptyState>
  );
}
