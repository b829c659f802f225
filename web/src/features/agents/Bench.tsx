import { ChevronDown, ChevronUp, Copy, RefreshCw, Send, Square } from "lucide-react";
import { useRef, useState, type KeyboardEvent } from "react";
import type { AgentView, Template } from "@/api/types";
import { Button, copyText, Field, IconButton, Input, Menu, Select, Textarea, useShortcut } from "@/ui";
import { Answer } from "./Answer";
import { earlier, remember } from "./earlier";
import { taskIn, type Happened } from "./happened";
import { curl, hasMessageId, jsonProblem, python, readHeaders, urlOf, withNewMessageId, writeHeaders, type Outgoing, type Request } from "./request";
import type { InspectSearch } from "./search";
import { useExchange } from "./useExchange";

interface BenchProps {
  agent: AgentView;
  template: Template;
  /** What stands in templates for the id of a task. */
  placeholder: string;
  task?: string;
  /** The agent's own address, if it is asked there. */
  base: string | null;
  onTask: (task: string) => void;
  onGo: (to: InspectSearch) => void;
}

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"].map((value) => ({ value, label: value }));
const WITHOUT_BODY = new Set(["GET", "HEAD", "DELETE", "OPTIONS"]);

function begin(template: Template, placeholder: string, task?: string): Request {
  const put = (text: string) => (task ? text.replaceAll(placeholder, task) : text);
  return {
    method: template.method,
    path: put(template.path),
    headers: writeHeaders(template.headers),
    body: template.body === null ? "" : put(JSON.stringify(template.body, null, 2)),
  };
}

/** A request to be edited and sent, and beside it what came back. */
export function Bench({ agent, template, placeholder, task, base, onTask, onGo }: BenchProps) {
  const [draft, setDraft] = useState(() => begin(template, placeholder, task));
  const [known, setKnown] = useState(() => earlier(agent.slug));
  const [at, setAt] = useState(known.length);
  const exchange = useExchange();
  const answer = useRef<HTMLElement>(null);
  const { headers, problem: badHeaders } = readHeaders(draft.headers);
  const badBody = jsonProblem(draft.body);
  const outgoing: Outgoing = { url: urlOf(base ?? agent.url, draft.path), method: draft.method, headers, body: draft.body, streams: template.streams };
  const hasBody = draft.body !== "" || !WITHOUT_BODY.has(draft.method);
  const isAboutTask = (draft.path + draft.body).includes(placeholder);

  async function send(request: Request = draft) {
    if (badHeaders) return;
    const next = remember(agent.slug, { ...request, dialect: template.dialect, binding: template.binding, operation: template.operation });
    setKnown(next);
    setAt(next.length);
    answer.current?.scrollIntoView({ block: "nearest", behavior: "smooth" }); // it is below the request on a phone
    const where = base ? { url: urlOf(base, request.path) } : { agent: agent.slug, path: request.path };
    const happened = await exchange.send({ ...where, method: request.method, headers, body: request.body === "" ? null : request.body });
    const about = taskOf(happened);
    if (about) onTask(about);
  }

  function look(step: number) {
    const next = at + step;
    if (next < 0 || next > known.length) return;
    setDraft(known[next] ?? begin(template, placeholder, task));
    setAt(next);
  }

  function again() {
    const fresh = { ...draft, body: withNewMessageId(draft.body) };
    setDraft(fresh);
    void send(fresh);
  }

  useShortcut({ keys: "Ctrl+enter", label: "Send the request", group: "Inspector" }, () => void send());

  return (
    <div className="grid min-h-0 flex-1 grid-cols-2 max-rail:block max-rail:overflow-y-auto">
      <section aria-label="Request" className="flex min-h-0 min-w-0 flex-col gap-3 overflow-y-auto border-r border-line p-5 max-rail:border-r-0 max-rail:border-b max-phone:p-4">
        <div className="flex gap-2">
          <Select aria-label="Method" value={draft.method} options={METHODS} onChange={(method) => setDraft({ ...draft, method })} />
          <Input aria-label="Path" className="min-w-0 flex-1 font-mono text-mono" value={draft.path} spellCheck={false} onChange={(event) => setDraft({ ...draft, path: event.target.value })} />
        </div>
        <p className="-mt-1 text-xs break-all text-faint">
          {base ? "Sent to" : "Sent as you to"} <code>{outgoing.url}</code>
        </p>
        <Field label="Headers" error={badHeaders}>
          <Textarea rows={3} className="font-mono text-mono" spellCheck={false} value={draft.headers} onChange={(event) => setDraft({ ...draft, headers: event.target.value })} />
        </Field>
        {hasBody && (
          <Field label="Body" error={badBody && `Not JSON: ${badBody}`} hint={isAboutTask ? `${placeholder} stands for the id of a task: send a message first, or write one in` : "Ctrl Enter sends; the arrow keys at its ends bring earlier requests back"}>
            <Textarea
              rows={Math.min(22, Math.max(6, draft.body.split("\n").length + 1))}
              className="font-mono text-mono"
              spellCheck={false}
              value={draft.body}
              onChange={(event) => setDraft({ ...draft, body: event.target.value })}
              onKeyDown={(event) => onArrows(event, look)}
            />
          </Field>
        )}
        <div className="flex flex-wrap items-center gap-2">
          {exchange.isBusy ? (
            <Button icon={<Square className="size-3.5" aria-hidden />} onClick={exchange.stop}>
              Stop
            </Button>
          ) : (
            <Button kind="primary" disabled={badHeaders !== null} icon={<Send className="size-3.5" aria-hidden />} onClick={() => void send()}>
              Send
            </Button>
          )}
          {hasMessageId(draft.body) && (
            <Button disabled={exchange.isBusy} title="The same message sent again is the same task" icon={<RefreshCw className="size-3.5" aria-hidden />} onClick={again}>
              Send as new
            </Button>
          )}
          <span className="ml-auto inline-flex items-center gap-1">
            <span className="mr-1 text-xs text-faint">{known.length > 0 && (at < known.length ? `${at + 1} of ${known.length}` : `${known.length} earlier`)}</span>
            <IconButton label="Earlier request" disabled={at === 0} onClick={() => look(-1)}>
              <ChevronUp />
            </IconButton>
            <IconButton label="Later request" disabled={at >= known.length} onClick={() => look(1)}>
              <ChevronDown />
            </IconButton>
            <Menu
              label="Copy the request"
              icon={<Copy />}
              items={[
                { label: "Copy as curl", onSelect: () => void copyText(curl(outgoing)) },
                { label: "Copy as Python", onSelect: () => void copyText(python(outgoing)) },
              ]}
            />
          </span>
        </div>
      </section>
      <section ref={answer} aria-label="Answer" className="flex min-h-0 min-w-0 flex-col overflow-y-auto p-5 max-rail:min-h-[60vh] max-phone:p-4">
        <Answer happened={exchange.happened} problem={exchange.problem} isBusy={exchange.isBusy} task={task} onGo={onGo} />
      </section>
    </div>
  );
}

function taskOf(happened: Happened): string | null {
  return taskIn(happened.body ?? happened.frames[0]?.data ?? "");
}

/** Up at the very beginning of the text, and down at its end, go through earlier requests. */
function onArrows(event: KeyboardEvent<HTMLTextAreaElement>, look: (step: number) => void) {
  const { selectionStart, selectionEnd, value } = event.currentTarget;
  if (event.shiftKey || event.altKey || selectionStart !== selectionEnd) return;
  if (event.key === "ArrowUp" && selectionStart === 0) look(-1);
  else if (event.key === "ArrowDown" && selectionStart === value.length) look(1);
  else return;
  event.preventDefault();
}
