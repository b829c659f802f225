import { useState } from "react";
import type { WorkflowView } from "@/api/types";
import { Button, defaultsOf, Dialog, Field, Notice, problemsOf, SchemaForm, Select, Textarea, type JsonSchema } from "@/ui";
import { useStartRun } from "./queries";

interface StartDialogProps {
  flows: readonly WorkflowView[];
  /** The workflow that is chosen at first. */
  first?: string;
  onClose: () => void;
}

/** What a run is given, asked for with a form made of the workflow's inputs. */
export function StartDialog({ flows, first, onClose }: StartDialogProps) {
  const [slug, setSlug] = useState(() => (flows.find((flow) => flow.slug === first) ?? flows[0])?.slug ?? "");
  const flow = flows.find((one) => one.slug === slug);
  return (
    <Dialog title="Start a run" open onClose={onClose} wide>
      <div className="flex flex-col gap-4 pb-1">
        {flows.length > 1 && (
          <Field label="Workflow">
            <Select value={slug} options={flows.map((one) => ({ value: one.slug, label: one.name }))} onChange={setSlug} />
          </Field>
        )}
        {flow && <StartForm key={flow.slug} flow={flow} onClose={onClose} />}
      </div>
    </Dialog>
  );
}

function StartForm({ flow, onClose }: { flow: WorkflowView; onClose: () => void }) {
  const schema = flow.inputs as JsonSchema | null;
  const [inputs, setInputs] = useState<unknown>(() => (schema ? defaultsOf(schema) : {}));
  const [input, setInput] = useState("");
  const [name, setName] = useState(flow.names[0] ?? "");
  const [isTried, setTried] = useState(false);
  const start = useStartRun();
  const problems = schema ? problemsOf(schema, inputs) : {};
  const asksText = flow.takesInput || !schema;

  function send() {
    setTried(true);
    if (Object.keys(problems).length > 0) return;
    start.mutate({
      workflow: flow.slug,
      name: flow.names.length > 1 ? name : undefined,
      input: asksText && input ? input : undefined,
      inputs: schema ? (inputs as Record<string, unknown>) : undefined,
    });
  }

  return (
    <form
      className="flex flex-col gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {flow.description && <p className="text-sm text-soft">{flow.description}</p>}
      {flow.names.length > 1 && (
        <Field label="What to run">
          <Select value={name} options={flow.names.map((one) => ({ value: one, label: one }))} onChange={setName} />
        </Field>
      )}
      {schema && <SchemaForm schema={schema} value={inputs} onChange={setInputs} problems={isTried ? problems : {}} />}
      {asksText && (
        <Field label="Input" hint="Its steps read it as {{input}}; it may be empty.">
          <Textarea value={input} onChange={(event) => setInput(event.target.value)} />
        </Field>
      )}
      {start.isError && <Notice tone="red">{start.error.message}</Notice>}
      <div className="-mx-5 -mb-4 flex justify-end gap-2 border-t border-line px-5 py-3">
        <Button onClick={onClose}>Close</Button>
        <Button kind="primary" type="submit" busy={start.isPending}>
          Start
        </Button>
      </div>
    </form>
  );
}
