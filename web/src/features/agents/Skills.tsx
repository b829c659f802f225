import { useNavigate } from "@tanstack/react-router";
import { Play } from "lucide-react";
import { useState, type FormEvent } from "react";
import type { AgentView, SkillView } from "@/api/types";
import { Button, defaultsOf, EmptyState, Field, Notice, problemsOf, SchemaForm, Tag, Textarea, type JsonSchema } from "@/ui";
import { useStart, useTry } from "./queries";

/** What an agent can do; each can be tried, and what is tried is a task like any other. */
export function Skills({ agent }: { agent: AgentView }) {
  const [open, setOpen] = useState<string | null>(agent.skills.length === 1 ? (agent.skills[0]?.id ?? null) : null);
  if (agent.skills.length === 0) return <EmptyState title="The card names no skill">Nobody can tell what the agent can do; it can be talked to all the same, in a chat or by the inspector.</EmptyState>;
  return (
    <ul className="flex flex-col gap-3">
      {agent.skills.map((skill) => (
        <li key={skill.id} className="flex flex-col gap-3 rounded-md border border-line p-4">
          <Told agent={agent} skill={skill} isOpen={open === skill.id} onTry={() => setOpen(open === skill.id ? null : skill.id)} />
          {open === skill.id && <TryIt agent={agent} skill={skill} />}
        </li>
      ))}
    </ul>
  );
}

function Told({ agent, skill, isOpen, onTry }: { agent: AgentView; skill: SkillView; isOpen: boolean; onTry: () => void }) {
  return (
    <div className="flex items-start gap-3">
      <div className="min-w-0 flex-1">
        <div className="flex flex-wrap items-center gap-x-2 gap-y-1">
          <h3 className="font-medium">{skill.name}</h3>
          {skill.tags.map((tag) => (
            <Tag key={tag}>{tag}</Tag>
          ))}
        </div>
        {skill.description && skill.description !== agent.description && <p className="mt-1 text-sm text-soft">{skill.description}</p>}
      </div>
      <Button size="small" aria-expanded={isOpen} onClick={onTry}>
        {isOpen ? "Close" : "Try it"}
      </Button>
    </div>
  );
}

function TryIt({ agent, skill }: { agent: AgentView; skill: SkillView }) {
  const schema = skill.schema as JsonSchema | null;
  const [text, setText] = useState("");
  const [data, setData] = useState<unknown>(() => (schema ? defaultsOf(schema) : undefined));
  const [isTried, setTried] = useState(false);
  const trial = useTrial(agent, skill);
  const problems: Record<string, string> = schema ? problemsOf(schema, data ?? {}) : text.trim() ? {} : { "": "Say something" };

  function send(event: FormEvent) {
    event.preventDefault();
    setTried(true);
    if (Object.keys(problems).length === 0) trial.send(schema ? { data: data ?? {} } : { text });
  }

  return (
    <form onSubmit={send} className="flex flex-col gap-3 border-t border-line pt-3">
      {schema ? (
        <SchemaForm schema={schema} value={data} onChange={setData} problems={isTried ? problems : undefined} />
      ) : (
        <>
          <Field label="Message" error={isTried ? problems[""] : null}>
            <Textarea
              value={text}
              placeholder={skill.examples[0] ?? "What should it do?"}
              onChange={(event) => setText(event.target.value)}
              onKeyDown={(event) => {
                if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
              }}
            />
          </Field>
          {skill.examples.length > 0 && (
            <div className="flex flex-wrap items-center gap-1">
              {skill.examples.map((example) => (
                <Button key={example} size="small" className="max-w-full" onClick={() => setText(example)}>
                  <span className="min-w-0 truncate font-normal">{example}</span>
                </Button>
              ))}
            </div>
          )}
        </>
      )}
      {trial.problem && <Notice tone="red">{trial.problem}</Notice>}
      <Button type="submit" kind="primary" className="self-start" busy={trial.isBusy} icon={<Play className="size-3.5" aria-hidden />}>
        {agent.kind === "workflow" ? "Start a run" : "Send"}
      </Button>
    </form>
  );
}

/** Begins a task, or a run of a workflow, and shows it. */
function useTrial(agent: AgentView, skill: SkillView) {
  const navigate = useNavigate();
  const task = useTry();
  const run = useStart();
  const isFlow = agent.kind === "workflow";
  return {
    isBusy: task.isPending || run.isPending,
    problem: task.error?.message ?? run.error?.message ?? null,
    send: (said: { text?: string; data?: unknown }) => {
      if (isFlow) {
        const start = { workflow: agent.slug, name: skill.id, input: said.text, inputs: said.data };
        run.mutate(start, { onSuccess: ({ id }) => void navigate({ to: "/runs/$runId", params: { runId: id } }) });
      } else {
        task.mutate({ agent: agent.slug, skill: skill.id, ...said }, { onSuccess: ({ id }) => void navigate({ to: "/tasks/$taskId", params: { taskId: id } }) });
      }
    },
  };
}
