import type { LogEvent } from "@/api/types";

/** What the log of a run, or of the task that does a step, says in lines. Agents may send anything: all is read with care. */

export interface LogLine {
  seq: number;
  at: string;
  text: string;
  tone: "plain" | "faint" | "red";
}

type Json = Record<string, unknown>;
const isJson = (value: unknown): value is Json => typeof value === "object" && value !== null && !Array.isArray(value);

function within(value: unknown, ...path: string[]): unknown {
  return path.reduce<unknown>((found, name) => (isJson(found) ? found[name] : undefined), value);
}

const textOf = (parts: unknown): string => (Array.isArray(parts) ? parts.flatMap((part) => (isJson(part) && typeof part.text === "string" ? [part.text] : [])).join("") : "");

/** The step that a run speaks of in an event, and what about it. */
function aboutOf(event: LogEvent): Json | null {
  const found = within(event.body, "metadata", "workflow") ?? within(event.body, "status", "message", "metadata", "workflow");
  return isJson(found) ? found : null;
}

const messageOf = (event: LogEvent): string => textOf(within(event.body, "status", "message", "parts"));

/** The lines of a run's log that are about a step. */
export function linesAbout(events: readonly LogEvent[], step: string): LogLine[] {
  const isPrinted = events.some((event) => within(aboutOf(event), "step") === step && within(aboutOf(event), "output") !== undefined);
  return events.flatMap((event) => {
    const about = aboutOf(event);
    if (!about) return [];
    const lines: LogLine[] = [];
    const add = (text: string, tone: LogLine["tone"] = "plain") => lines.push({ seq: event.seq, at: event.at, text, tone });
    if (about.step === step) {
      const said = messageOf(event).replace(`**[${step}]** `, "");
      if (typeof about.output === "string") for (const line of about.output.split("\n")) add(line);
      // The post about its end repeats what it printed.
      else if (isPrinted && about.status === "completed") add(said.split("\n")[0] ?? "");
      else if (said) add(said, about.status === "failed" || about.status === "retrying" ? "red" : "plain");
    }
    if (Array.isArray(about.started) && about.started.includes(step)) add("Begins", "faint");
    return lines;
  });
}

/** What a task says: its statuses, and its text as it streams, gathered into lines. */
export function linesOf(events: readonly LogEvent[]): LogLine[] {
  const lines: LogLine[] = [];
  for (const event of events) {
    const artifact = textOf(within(event.body, "artifact", "parts"));
    const state = within(event.body, "status", "state");
    const last = lines.at(-1);
    if (artifact && within(event.body, "append") === true && last && last.tone === "plain") last.text += artifact;
    else if (artifact) lines.push({ seq: event.seq, at: event.at, text: artifact, tone: "plain" });
    else if (messageOf(event)) lines.push({ seq: event.seq, at: event.at, text: messageOf(event), tone: state === "TASK_STATE_FAILED" ? "red" : "faint" });
  }
  return lines;
}
