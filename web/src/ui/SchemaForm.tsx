import { Braces, ListChecks } from "lucide-react";
import { useState } from "react";
import { Button } from "./Button";
import { Checkbox, Field, Input, Select, Textarea } from "./Field";
import { isRecord, kindOf, type JsonSchema } from "./schema";

interface SchemaFormProps {
  schema: JsonSchema;
  value: unknown;
  onChange: (value: unknown) => void;
  /** From `problemsOf`, shown beside their fields. */
  problems?: Record<string, string>;
}

const UNSET = "";

interface NodeProps extends SchemaFormProps {
  name: string;
  path: string;
  required: boolean;
}

function numberFrom(text: string): unknown {
  const number = Number(text);
  return text.trim() === "" ? undefined : Number.isNaN(number) ? text : number;
}

/** Text that is kept as typed and handed on only while it is JSON. */
export function JsonField({ label, value, onChange, required, error, rows = 6 }: { label: string; value: unknown; onChange: (value: unknown) => void; required?: boolean; error?: string; rows?: number }) {
  const [text, setText] = useState(() => (value === undefined ? "" : JSON.stringify(value, null, 2)));
  const [broken, setBroken] = useState<string | null>(null);
  function change(next: string) {
    setText(next);
    try {
      onChange(next.trim() === "" ? undefined : JSON.parse(next));
      setBroken(null);
    } catch (problem) {
      setBroken(problem instanceof Error ? problem.message : "Not JSON");
    }
  }
  return (
    <Field label={label} required={required} error={broken ?? error}>
      <Textarea value={text} rows={rows} spellCheck={false} className="font-mono text-mono" onChange={(event) => change(event.target.value)} />
    </Field>
  );
}

function FormNode({ schema, value, onChange, problems, name, path, required }: NodeProps) {
  const label = schema.title ?? name;
  const error = problems?.[path];
  const kind = kindOf(schema);
  if (kind === "object") {
    const record = isRecord(value) ? value : {};
    return (
      <fieldset className="flex flex-col gap-3">
        {label && <legend className="mb-2 text-xs font-semibold text-soft">{label}</legend>}
        <div className={path ? "flex flex-col gap-3 border-l border-line pl-3" : "flex flex-col gap-3"}>
          {Object.entries(schema.properties ?? {}).map(([key, child]) => (
            <FormNode
              key={key}
              schema={child}
              name={key}
              path={path ? `${path}.${key}` : key}
              required={schema.required?.includes(key) ?? false}
              value={record[key]}
              problems={problems}
              onChange={(next) => {
                const { [key]: _replaced, ...others } = record;
                onChange(next === undefined ? others : { ...others, [key]: next });
              }}
            />
          ))}
        </div>
      </fieldset>
    );
  }
  if (kind === "boolean") {
    return <Checkbox label={label} checked={value === true} onChange={onChange} />;
  }
  if (kind === "json") {
    return <JsonField label={label} value={value} onChange={onChange} required={required} error={error} />;
  }
  const text = value === undefined || value === null ? "" : String(value);
  return (
    <Field label={label} hint={schema.description} error={error} required={required}>
      {kind === "enum" && (
        <Select
          value={value === undefined ? UNSET : String((schema.enum ?? []).indexOf(value))}
          options={[{ value: UNSET, label: "Choose" }, ...(schema.enum ?? []).map((choice, index) => ({ value: String(index), label: String(choice) }))]}
          onChange={(index) => onChange(index === UNSET ? undefined : schema.enum?.[Number(index)])}
        />
      )}
      {kind === "string" && <Input value={text} onChange={(event) => onChange(event.target.value || undefined)} />}
      {kind === "text" && <Textarea value={text} onChange={(event) => onChange(event.target.value || undefined)} />}
      {kind === "number" && <Input inputMode="decimal" value={text} onChange={(event) => onChange(numberFrom(event.target.value))} />}
      {kind === "strings" && (
        <Textarea
          value={Array.isArray(value) ? value.join("\n") : ""}
          placeholder="One per line"
          onChange={(event) => onChange(event.target.value ? event.target.value.split("\n") : undefined)}
        />
      )}
    </Field>
  );
}

/** A form made from a JSON Schema, which can be turned into raw JSON and back. The caller keeps the value. */
export function SchemaForm({ schema, value, onChange, problems }: SchemaFormProps) {
  const [raw, setRaw] = useState(kindOf(schema) === "json");
  return (
    <div className="flex flex-col gap-3">
      {raw ? (
        <JsonField label="JSON" value={value} onChange={onChange} error={problems?.[""]} rows={10} />
      ) : (
        <FormNode schema={schema} name="" path="" required value={value} onChange={onChange} problems={problems} />
      )}
      {kindOf(schema) !== "json" && (
        <Button kind="ghost" size="small" className="self-start" icon={raw ? <ListChecks className="size-3.5" /> : <Braces className="size-3.5" />} onClick={() => setRaw(!raw)}>
          {raw ? "Edit as a form" : "Edit as JSON"}
        </Button>
      )}
    </div>
  );
}
