import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Activity, Trash2 } from "lucide-react";
import { useState } from "react";
import { useServerUrl } from "@/api/session";
import { Button, Command, ConfirmDialog, ErrorState, JsonView, Panel, Section, SkeletonPanel, Tag, Time, toast } from "@/ui";
import { registry, registryKeys, type Published } from "./api";
import { HealthTag, Signature } from "./look";

export default function RegistryDetail() {
  const { cardId } = useParams({ from: "/console/registry/$cardId" });
  const search = useSearch({ from: "/console/registry" });
  const navigate = useNavigate();
  const found = useQuery({ queryKey: registryKeys.one(cardId), queryFn: ({ signal }) => registry.find(cardId, signal) });
  const close = () => void navigate({ to: "/registry", search });
  return (
    <Panel label="Published agent" title={found.data?.name ?? "Agent"} actions={found.data?.is_own && <Own agent={found.data} onGone={close} />} onClose={close}>
      {found.isPending ? <SkeletonPanel /> : found.isError ? <ErrorState title="The agent could not be loaded" error={found.error} onRetry={() => void found.refetch()} /> : <Shown agent={found.data} />}
    </Panel>
  );
}

/** What only its owner may do with it. */
function Own({ agent, onGone }: { agent: Published; onGone: () => void }) {
  const client = useQueryClient();
  const [asks, setAsks] = useState(false);
  const look = useMutation({
    mutationFn: () => registry.check(agent.id),
    onSuccess: (fresh) => client.setQueryData(registryKeys.one(agent.id), fresh),
    onError: (error) => toast(error.message, "error"),
  });
  const remove = useMutation({
    mutationFn: () => registry.remove(agent.id),
    onSuccess: () => {
      void client.invalidateQueries({ queryKey: ["registry"] });
      onGone();
    },
    onError: (error) => toast(error.message, "error"),
  });
  return (
    <>
      <Button size="small" busy={look.isPending} icon={<Activity className="size-3.5" aria-hidden />} onClick={() => look.mutate()}>
        Check
      </Button>
      {agent.is_active && (
        <Button size="small" kind="ghost" icon={<Trash2 className="size-3.5" aria-hidden />} onClick={() => setAsks(true)}>
          Remove
        </Button>
      )}
      <ConfirmDialog title={`Remove ${agent.human_readable_id}?`} open={asks} action="Remove it" busy={remove.isPending} onConfirm={() => remove.mutate()} onClose={() => setAsks(false)}>
        Nobody finds it any more. Its name stays yours.
      </ConfirmDialog>
    </>
  );
}

function Shown({ agent }: { agent: Published }) {
  const { health } = agent;
  const server = useServerUrl();
  return (
    <div className="flex flex-col gap-6 p-5">
      <p className="text-soft">{agent.description}</p>
      <dl className="grid grid-cols-[96px_1fr] items-baseline gap-x-4 gap-y-1.5 text-sm">
        <dt className="text-faint">Name</dt>
        <dd>
          <code>{agent.human_readable_id}</code>
        </dd>
        <dt className="text-faint">Owner</dt>
        <dd>
          {agent.is_own ? "You" : <code>{agent.developer_id}</code>} {agent.developer_is_verified && <Tag tone="green">authenticated</Tag>}
        </dd>
        <dt className="text-faint">Seen by</dt>
        <dd>{agent.visibility}</dd>
        <dt className="text-faint">Signature</dt>
        <dd title={agent.signature.detail}>
          <Signature verdict={agent.signature.state} /> {agent.signature.key && <code className="text-faint">{agent.signature.key}</code>}
        </dd>
        <dt className="text-faint">Health</dt>
        <dd className="flex flex-wrap items-center gap-2">
          <HealthTag state={health.state} /> {health.detail && <span className="text-soft">{health.detail}</span>}
          {health.checked_at && (
            <span className="text-xs text-faint">
              looked <Time at={health.checked_at} />
            </span>
          )}
        </dd>
        <dt className="text-faint">Updated</dt>
        <dd>
          <Time at={agent.updated_at} />
        </dd>
      </dl>
      <Section title="Call it">
        <Command text={`accord send ${agent.human_readable_id} "hello" --registry ${server}`} />
      </Section>
      <Section title="Card">
        <JsonView value={agent.card_data} />
      </Section>
    </div>
  );
}
