import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { ApiError } from "@/api/client";
import { Button, Dialog, Field, Input, Notice, Select, Textarea } from "@/ui";
import { registry, type Validated } from "./api";
import { Signature } from "./look";

const VISIBILITIES = [
  { value: "tenant", label: "Everybody in the tenant" },
  { value: "public", label: "Everybody" },
  { value: "private", label: "Only me" },
];

/** A card, looked at before it is published. */
export function PublishDialog({ open, onClose }: { open: boolean; onClose: () => void }) {
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  const [visibility, setVisibility] = useState("tenant");
  const client = useQueryClient();
  const navigate = useNavigate();
  const check = useMutation({ mutationFn: () => registry.validate(JSON.parse(text)) });
  const publish = useMutation({
    mutationFn: () => registry.publish(JSON.parse(text), visibility, name),
    onSuccess: (made) => {
      void client.invalidateQueries({ queryKey: ["registry"] });
      onClose();
      void navigate({ to: "/registry/$cardId", params: { cardId: made.id } });
    },
  });
  const problem = text ? jsonProblem(text) : null;
  const footer = (
    <>
      <Button disabled={!text || problem !== null} busy={check.isPending} onClick={() => check.mutate()}>
        Check the card
      </Button>
      <Button kind="primary" disabled={!text || problem !== null} busy={publish.isPending} onClick={() => publish.mutate()}>
        Publish
      </Button>
    </>
  );
  return (
    <Dialog title="Publish an agent" open={open} onClose={onClose} footer={footer} wide>
      <div className="flex flex-col gap-4">
        <Field label="Agent card (JSON)" required error={problem} hint="As the agent serves it at /.well-known/agent-card.json">
          <Textarea
            rows={12}
            spellCheck={false}
            className="font-mono text-mono"
            value={text}
            onChange={(event) => {
              setText(event.target.value);
              check.reset();
              publish.reset();
            }}
          />
        </Field>
        <div className="grid grid-cols-2 gap-4 max-phone:grid-cols-1">
          <Field label="Name" hint="org/agent; without one the card's own is taken">
            <Input value={name} placeholder="acme/weather" onChange={(event) => setName(event.target.value)} />
          </Field>
          <Field label="Who sees it">
            <Select value={visibility} options={VISIBILITIES} onChange={setVisibility} />
          </Field>
        </div>
        {check.data && <Verdict found={check.data} />}
        {(publish.error ?? check.error) && <Refused error={(publish.error ?? check.error) as Error} />}
      </div>
    </Dialog>
  );
}

function Verdict({ found }: { found: Validated }) {
  if (!found.is_valid) return <Findings title={found.detail ?? "The card cannot be published"} findings={found.findings ?? []} />;
  return (
    <Notice>
      It can be published as <code>{found.human_readable_id}</code>. {found.signature && <Signature verdict={found.signature.state} />}
    </Notice>
  );
}

function Refused({ error }: { error: Error }) {
  return <Findings title={error instanceof ApiError ? error.detail : error.message} findings={error instanceof ApiError ? error.findings : []} />;
}

function Findings({ title, findings }: { title: string; findings: readonly { field: string; problem: string }[] }) {
  return (
    <Notice tone="red">
      <p className="font-medium">{title}</p>
      {findings.length > 0 && (
        <ul className="mt-1 flex flex-col gap-0.5">
          {findings.map((one) => (
            <li key={`${one.field} ${one.problem}`}>
              <code>{one.field}</code>: {one.problem}
            </li>
          ))}
        </ul>
      )}
    </Notice>
  );
}

/** What is wrong with a text that should be a JSON object, if anything is. */
function jsonProblem(text: string): string | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? null : "A card is a JSON object";
  } catch (error) {
    return error instanceof Error ? error.message : "Not JSON";
  }
}
