import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { RotateCw } from "lucide-react";
import { useState } from "react";
import { api, ApiError } from "@/api/client";
import { keys } from "@/api/keys";
import type { AttemptView, DeliveryView, Exchange } from "@/api/types";
import { Button, CodeBlock, CopyButton, cx, EmptyState, ErrorState, formatDuration, Notice, Panel, Section, SkeletonPanel, Tabs, Time, toast } from "@/ui";
import { DeliveryBadge, StatusCode } from "./look";

export default function DeliveryDetail() {
  const { taskId, pushId } = useParams({ from: "/console/deliveries/$taskId/$pushId" });
  const search = useSearch({ from: "/console/deliveries" });
  const navigate = useNavigate();
  const client = useQueryClient();
  const id = `${taskId}/${pushId}`;
  const path = `/api/deliveries/${encodeURIComponent(taskId)}/${encodeURIComponent(pushId)}`;
  const found = useQuery({ queryKey: keys.delivery(id), queryFn: ({ signal }) => api.get<DeliveryView>(path, {}, signal) });
  const again = useMutation({
    mutationFn: () => api.post<{ count: number }>("/api/deliveries/redeliver", { ids: [id] }),
    onSuccess: ({ count }) => toast(count ? "Tried again" : "You may not have this one tried again", count ? "plain" : "error"),
    onError: (error) => toast(error.message, "error"),
    onSettled: () => void client.invalidateQueries({ queryKey: keys.delivery(id) }),
  });
  const redeliver = (
    <Button size="small" kind={found.data?.state === "dead" ? "primary" : "secondary"} busy={again.isPending} icon={<RotateCw className="size-3.5" aria-hidden />} onClick={() => again.mutate()}>
      Redeliver
    </Button>
  );
  return (
    <Panel label="Webhook" title={found.data ? <DeliveryBadge state={found.data.state} /> : "Webhook"} actions={found.data && redeliver} onClose={() => void navigate({ to: "/deliveries", search })}>
      {found.isPending ? (
        <SkeletonPanel />
      ) : found.error instanceof ApiError && found.error.status === 404 ? (
        <EmptyState title="There is no such webhook">It may have been removed, or it belongs to somebody else.</EmptyState>
      ) : found.isError ? (
        <ErrorState title="The webhook could not be loaded" error={found.error} safe="Nothing is lost: deliveries are stored on the server." onRetry={() => void found.refetch()} />
      ) : (
        <Shown delivery={found.data} />
      )}
    </Panel>
  );
}

function Shown({ delivery }: { delivery: DeliveryView }) {
  const [chosen, setChosen] = useState<number | null>(null);
  const attempt = delivery.history.find((one) => one.id === chosen) ?? delivery.history[0];
  return (
    <div className="flex flex-col gap-6 p-5">
      {delivery.lastError && delivery.state !== "delivered" && (
        <Notice tone={delivery.state === "dead" ? "red" : "amber"}>
          {delivery.lastError}
          {delivery.state === "dead" && <p className="mt-1 text-soft">Nothing more is sent until somebody redelivers it.</p>}
        </Notice>
      )}
      <dl className="grid grid-cols-[96px_1fr] items-baseline gap-x-4 gap-y-1.5 text-sm">
        <dt className="text-faint">Address</dt>
        <dd className="flex min-w-0 items-center gap-1">
          <code className="min-w-0 break-all">{delivery.url}</code>
          <CopyButton text={delivery.url} label="Copy the address" />
        </dd>
        <dt className="text-faint">Task</dt>
        <dd>
          <Link to="/tasks/$taskId" params={{ taskId: delivery.taskId }} className="link">
            <code>{delivery.taskId}</code>
          </Link>
        </dd>
        <dt className="text-faint">Agent</dt>
        <dd>{delivery.agent}</dd>
        <dt className="text-faint">Delivered</dt>
        <dd>
          up to event {delivery.cursor} of {delivery.lastSeq}
        </dd>
        {delivery.nextAt && (
          <>
            <dt className="text-faint">Next try</dt>
            <dd>
              <Time at={delivery.nextAt} /> (attempt {delivery.attempts + 1} of {delivery.maxAttempts})
            </dd>
          </>
        )}
      </dl>
      <Section title="Attempts">
        {delivery.history.length === 0 ? (
          <p className="text-sm text-faint">It was not called yet.</p>
        ) : (
          <ul className="overflow-hidden rounded-md border border-line">
            {delivery.history.map((one) => (
              <li key={one.id} className="border-b border-line last:border-b-0">
                <AttemptLine attempt={one} isChosen={one === attempt} onChoose={() => setChosen(one.id)} />
              </li>
            ))}
          </ul>
        )}
      </Section>
      {attempt && <Exchanged attempt={attempt} />}
    </div>
  );
}

function AttemptLine({ attempt, isChosen, onChoose }: { attempt: AttemptView; isChosen: boolean; onChoose: () => void }) {
  return (
    <button type="button" aria-pressed={isChosen} onClick={onChoose} className={cx("flex h-9 w-full items-center gap-3 px-3 text-left text-sm hover:bg-hover", isChosen && "bg-accent-tint")}>
      <span className="w-7 shrink-0 text-right text-xs text-faint" title={`Attempt ${attempt.attempt}`}>
        <span className="sr-only">Attempt </span>#{attempt.attempt}
      </span>
      {(attempt.status !== null || !attempt.error) && <StatusCode status={attempt.status} />}
      <span className={cx("min-w-0 flex-1 truncate", attempt.error ? "text-red" : "text-soft")} title={attempt.error ?? undefined}>
        {attempt.error ?? `Event ${attempt.seq}`}
      </span>
      <span className="w-14 text-right text-xs text-faint">{formatDuration(attempt.durationMs)}</span>
      <Time at={attempt.at} className="w-12 text-right text-xs text-faint" />
    </button>
  );
}

function Exchanged({ attempt }: { attempt: AttemptView }) {
  const [tab, setTab] = useState("request");
  return (
    <Tabs
      label="What was said"
      selected={tab}
      onSelect={setTab}
      tabs={[
        { id: "request", label: "Request", content: <Side exchange={attempt.request} nothing="Nothing was sent." /> },
        { id: "response", label: "Response", content: <Side exchange={attempt.response} nothing="There was no answer." /> },
      ]}
    />
  );
}

function Side({ exchange, nothing }: { exchange: Exchange; nothing: string }) {
  const headers = Object.entries(exchange.headers);
  if (headers.length === 0 && !exchange.body) return <p className="text-sm text-faint">{nothing}</p>;
  return (
    <div className="flex flex-col gap-3">
      {headers.length > 0 && <CodeBlock label="Headers" wrap code={headers.map(([name, value]) => `${name}: ${value}`).join("\n")} />}
      {exchange.body ? <CodeBlock label="Body" wrap code={pretty(exchange.body)} /> : <p className="text-sm text-faint">No body.</p>}
    </div>
  );
}

/** JSON is shown with its structure; what was cut off, or is none, as it is. */
function pretty(body: string): string {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}
