import { useQuery } from "@tanstack/react-query";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import type { StorageUse, UsageView } from "@/api/types";
import { ErrorState, formatBytes, Section, SkeletonText, Tag } from "@/ui";

/** The share of a quota from which it is marked. */
const NEARLY_FULL = 0.8;

/** The tasks and bytes that the caller stores, with the quotas; operators also see their tenant and its largest owners. */
export function Storage() {
  const usage = useQuery({ queryKey: keys.usage, queryFn: ({ signal }) => api.get<UsageView>("/api/usage", {}, signal) });
  return (
    <Section title="Storage">
      {usage.isPending && <SkeletonText lines={1} label="Loading the storage" />}
      {usage.isError && <ErrorState title="The storage could not be loaded" error={usage.error} onRetry={() => void usage.refetch()} />}
      {usage.data && (
        <ul aria-label="Storage" className="overflow-hidden rounded-md border border-line">
          <Line name="Your tasks" use={usage.data.owner} />
          {usage.data.tenant && <Line name="All tasks of the tenant" use={usage.data.tenant} />}
          {usage.data.owners?.map((owner) => (
            <Line key={`${owner.tenant}/${owner.owner}`} name={owner.owner || "Callers without a name"} use={{ ...owner, maxTasks: null, maxBytes: null }} isPart />
          ))}
        </ul>
      )}
    </Section>
  );
}

function Line({ name, use, isPart = false }: { name: string; use: StorageUse; isPart?: boolean }) {
  const share = Math.max(use.tasks / (use.maxTasks ?? Infinity), use.bytes / (use.maxBytes ?? Infinity));
  return (
    <li className="flex min-h-9 flex-wrap items-center gap-x-3 border-line px-4 py-1.5 text-sm not-last:border-b">
      <span className={isPart ? "min-w-0 flex-1 truncate pl-4 text-faint" : "min-w-0 flex-1 truncate"}>{name}</span>
      {share >= NEARLY_FULL && <Tag tone={share >= 1 ? "red" : "amber"}>{share >= 1 ? "quota reached" : "nearly full"}</Tag>}
      <span className="text-soft">{[amount(use.tasks, use.maxTasks, (count) => count.toLocaleString("en"), " tasks"), amount(use.bytes, use.maxBytes, formatBytes)].join(", ")}</span>
    </li>
  );
}

function amount(used: number, max: number | null, format: (value: number) => string, unit = ""): string {
  const name = used === 1 && max === null ? unit.replace(/s$/, "") : unit;
  return `${format(used)}${max === null ? "" : ` of ${format(max)}`}${name}`;
}
