import { ChevronRight } from "lucide-react";
import { useState } from "react";
import type { LogEvent } from "@/api/types";
import { Button, cx, formatDuration, formatExact, JsonView, Section, SkeletonText, toMs } from "@/ui";
import { useTaskEvents } from "../queries";

/** This many of the newest are shown at first: a long stream has thousands. */
const SHOWN = 60;

/** The raw log, in its order: sequence, kind, time since the one before, and the JSON on a click. */
export function Events({ taskId, task }: { taskId: string; task: unknown }) {
  const log = useTaskEvents(taskId);
  const [all, setAll] = useState(false);
  const [raw, setRaw] = useState(false);
  const items = log.data?.items ?? [];
  const hidden = all ? 0 : Math.max(0, items.length - SHOWN);
  return (
    <Section
      title={`Events${items.length ? ` (${items.length})` : ""}`}
      actions={
        <Button kind="ghost" size="small" aria-expanded={raw} onClick={() => setRaw(!raw)}>
          {raw ? "Hide the task's JSON" : "Show the task's JSON"}
        </Button>
      }
    >
      {raw && <JsonView value={task} />}
      {log.isPending && <SkeletonText lines={4} label="Loading the events" />}
      {log.isError && <p className="text-sm text-red">The events could not be loaded: {log.error.message}</p>}
      {log.data && items.length === 0 && <p className="text-sm text-faint">Nothing has happened yet.</p>}
      {items.length > 0 && (
        <div className="overflow-hidden rounded-md border border-line">
          {hidden > 0 && (
            <button type="button" onClick={() => setAll(true)} className="h-8 w-full border-b border-line bg-sunken text-xs text-soft hover:bg-hover">
              Show {hidden} earlier events
            </button>
          )}
          <ol>
            {items.slice(hidden).map((event) => (
              <EventRow key={event.seq} event={event} />
            ))}
          </ol>
        </div>
      )}
    </Section>
  );
}

function EventRow({ event }: { event: LogEvent }) {
  const [open, setOpen] = useState(false);
  return (
    <li className="border-line not-last:border-b">
      <button
        type="button"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
        className="grid h-8 w-full grid-cols-[16px_40px_64px_1fr_auto] items-center gap-2 px-2.5 text-left text-xs -outline-offset-2 hover:bg-hover"
      >
        <ChevronRight className={cx("size-3.5 text-faint transition-transform duration-[120ms]", open && "rotate-90")} aria-hidden />
        <span className="text-right font-mono text-faint">{event.seq}</span>
        <span>{event.kind}</span>
        <span className="truncate text-soft">{gistOf(event)}</span>
        <span className="text-faint" title={formatExact(toMs(event.at))}>
          {event.gapMs === null ? "begin" : `+${formatDuration(event.gapMs)}`}
        </span>
      </button>
      {open && <JsonView value={event.body} openTo={3} className="rounded-none border-0 border-t" />}
    </li>
  );
}

type Json = Record<string, unknown>;
const within = (value: unknown, name: string): unknown => (typeof value === "object" && value !== null ? (value as Json)[name] : undefined);

/** One line of what an event says, as far as it says something that fits on one. */
function gistOf(event: LogEvent): string {
  const body: unknown = Object.values(event.body).find((value) => typeof value === "object" && value !== null && ("status" in value || "artifact" in value || "parts" in value)) ?? event.body;
  const status = within(body, "status");
  const holder = within(status, "message") ?? within(body, "artifact") ?? body;
  const parts = within(holder, "parts");
  const text = Array.isArray(parts) ? parts.map((part) => within(part, "text")).filter((piece) => typeof piece === "string").join(" ") : "";
  const state = within(status, "state");
  const word = typeof state === "string" ? state.replace("TASK_STATE_", "").toLowerCase().replaceAll("_", "-") : within(within(body, "artifact"), "name");
  return [word, text].filter((piece) => typeof piece === "string" && piece !== "").join(" · ");
}
