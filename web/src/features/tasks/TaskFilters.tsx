import { X } from "lucide-react";
import { useEffect, useEffectEvent, useState } from "react";
import { useAgents } from "@/api/agents";
import { Button, cx, SearchInput, Select, stateLook, TASK_STATES, type Option, type TaskState } from "@/ui";
import type { Since, TasksSearch } from "./search";

/** Groups of states that people look for, beside the states themselves. */
const GROUPS: readonly { label: string; states: readonly TaskState[] }[] = [
  { label: "Any state", states: [] },
  { label: "Active", states: ["submitted", "working", "input-required", "auth-required"] },
  { label: "Waiting for people", states: ["input-required", "auth-required"] },
  { label: "Failed or rejected", states: ["failed", "rejected"] },
];

const STATES: readonly Option[] = [
  ...GROUPS.map((group) => ({ value: group.states.join(","), label: group.label })),
  ...TASK_STATES.map((state) => ({ value: state, label: stateLook(state).word })),
];

const TIMES: readonly Option[] = [
  { value: "", label: "Any time" },
  { value: "1h", label: "Last hour" },
  { value: "24h", label: "Last 24 hours" },
  { value: "7d", label: "Last 7 days" },
  { value: "30d", label: "Last 30 days" },
];

/** The order of the address is that of TASK_STATES; so must the option's be, to be found again. */
const inOrder = (states: readonly TaskState[]) => TASK_STATES.filter((state) => states.includes(state)).join(",");
const TYPING_MS = 250;
/** On a phone the three share one line. */
const ON_PHONE = "max-phone:w-auto max-phone:min-w-0 max-phone:flex-1";

export function TaskFilters({ search, onChange }: { search: TasksSearch; onChange: (change: Partial<TasksSearch>) => void }) {
  const agents = useAgents();
  const agentOptions = [{ value: "", label: "Any agent" }, ...(agents.data?.items ?? []).map((agent) => ({ value: agent.slug, label: agent.name }))];
  if (search.agent && !agentOptions.some((option) => option.value === search.agent)) agentOptions.push({ value: search.agent, label: search.agent });
  return (
    <>
      <SearchBox value={search.q ?? ""} onChange={(q) => onChange({ q: q || undefined })} />
      <Select
        aria-label="State"
        className={cx("w-32", ON_PHONE)}
        value={inOrder(search.state ?? [])}
        options={STATES.map((option) => ({ ...option, value: inOrder(option.value.split(",") as TaskState[]) }))}
        onChange={(value) => onChange({ state: value ? (value.split(",") as TaskState[]) : undefined })}
      />
      <Select aria-label="Agent" className={cx("w-28", ON_PHONE)} value={search.agent ?? ""} options={agentOptions} onChange={(agent) => onChange({ agent: agent || undefined })} />
      <Select aria-label="Time" className={cx("w-28", ON_PHONE)} value={search.since ?? ""} options={TIMES} onChange={(since) => onChange({ since: (since || undefined) as Since | undefined })} />
      {search.contextId && (
        <Button size="small" kind="ghost" icon={<X className="size-3.5" />} onClick={() => onChange({ contextId: undefined })}>
          One conversation
        </Button>
      )}
    </>
  );
}

/** Goes into the address once somebody stops typing. */
function SearchBox({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [typed, setTyped] = useState(value);
  const [seen, setSeen] = useState(value);
  // The address changed by itself (back, a link): it wins over what was typed.
  if (value !== seen) {
    setSeen(value);
    setTyped(value);
  }
  const tell = useEffectEvent(onChange);
  useEffect(() => {
    if (typed === value) return;
    const timer = setTimeout(() => tell(typed), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed, value]);
  return <SearchInput label="Search title or id" value={typed} onChange={(event) => setTyped(event.target.value)} className="w-36 max-w-56 grow max-phone:w-full max-phone:max-w-none" />;
}
