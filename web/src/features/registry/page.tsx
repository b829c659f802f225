import { useInfiniteQuery } from "@tanstack/react-query";
import { Outlet, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { BookMarked, Plus } from "lucide-react";
import { useState } from "react";
import { pageUrl } from "@/api/client";
import { useServerUrl } from "@/api/session";
import { Button, Checkbox, EmptyState, ErrorState, Page, SearchInput, SkeletonRows, Table, Tag, Time, type Column } from "@/ui";
import { PAGE, registry, registryKeys, type Listed } from "./api";
import { HealthTag } from "./look";
import { PublishDialog } from "./PublishDialog";
import type { RegistrySearch } from "./search";

const COLUMNS: readonly Column<Listed>[] = [
  { id: "name", header: "Name", isName: true, width: "minmax(140px, 1fr)", cell: (row) => <code>{row.human_readable_id}</code> },
  { id: "about", header: "About", width: "minmax(120px, 2fr)", cell: (row) => <span className="text-soft">{row.description || row.name}</span>, from: 640 },
  { id: "visibility", header: "Seen by", width: "90px", cell: (row) => <Tag>{row.visibility}</Tag>, from: 760 },
  { id: "health", header: "Health", width: "110px", cell: (row) => (row.is_active ? <HealthTag state={row.health} /> : <Tag>Removed</Tag>) },
  { id: "updated", header: "Updated", width: "70px", align: "right", cell: (row) => row.updated_at && <Time at={row.updated_at} className="text-faint" />, from: 480 },
];

export default function RegistryPage() {
  const search = useSearch({ from: "/console/registry" });
  const navigate = useNavigate();
  const { cardId } = useParams({ strict: false });
  const server = useServerUrl();
  const [publishes, setPublishes] = useState(false);
  const list = useInfiniteQuery({
    queryKey: registryKeys.list(search),
    queryFn: ({ pageParam, signal }) => registry.search(search.q, search.own, pageParam, signal),
    initialPageParam: 0,
    getNextPageParam: ({ pagination }) => (pagination.offset + PAGE < pagination.total_items ? pagination.offset + PAGE : null),
  });
  const rows = list.data?.pages.flatMap((page) => page.items) ?? [];
  const total = list.data?.pages[0]?.pagination.total_items;
  const narrow = (change: RegistrySearch) => void navigate({ to: "/registry", search: { ...search, ...change }, replace: true });
  return (
    <Page
      title="Registry"
      fill
      count={total !== undefined && `${total} ${total === 1 ? "agent" : "agents"}`}
      panel={<Outlet />}
      actions={
        <Button kind="primary" icon={<Plus className="size-4" aria-hidden />} onClick={() => setPublishes(true)}>
          Publish
        </Button>
      }
      toolbar={
        <>
          <SearchInput label="Search agents" className="w-64 max-phone:w-auto max-phone:min-w-0 max-phone:flex-1" value={search.q ?? ""} onChange={(event) => narrow({ q: event.target.value || undefined })} />
          <Checkbox label="Only mine" checked={search.own ?? false} onChange={(own) => narrow({ own: own || undefined })} />
        </>
      }
    >
      {list.isPending ? (
        <SkeletonRows label="Loading the registry" />
      ) : list.isError ? (
        <ErrorState title="The registry could not be loaded" error={list.error} safe="Nothing is lost: entries are stored on the server." onRetry={() => void list.refetch()} />
      ) : rows.length === 0 ? (
        <EmptyState icon={BookMarked} title={search.q || search.own ? "No agent fits" : "No agent is published here yet"} command={search.q ? undefined : `accord agents publish https://weather.example --name acme/weather --registry ${server}`}>
          A published agent is found, checked and called by its name.
        </EmptyState>
      ) : (
        <Table
          label="Published agents"
          rows={rows}
          columns={COLUMNS}
          rowKey={(row) => row.id}
          selected={cardId}
          href={(row) => pageUrl(`/registry/${encodeURIComponent(row.id)}`)}
          onOpen={(row) => void navigate({ to: "/registry/$cardId", params: { cardId: row.id }, search })}
          onEnd={() => list.hasNextPage && !list.isFetchingNextPage && void list.fetchNextPage()}
        />
      )}
      <PublishDialog open={publishes} onClose={() => setPublishes(false)} />
    </Page>
  );
}
