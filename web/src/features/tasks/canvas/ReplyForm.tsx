import { CornerDownLeft } from "lucide-react";
import { useState, type FormEvent, type KeyboardEvent } from "react";
import { Button, defaultsOf, problemsOf, SchemaForm, Textarea, type JsonSchema } from "@/ui";
import type { Reply } from "../queries";

interface ReplyFormProps {
  /** What the answer looks like, if the agent said so; a plain text otherwise. */
  schema: JsonSchema | null;
  busy: boolean;
  autoFocus?: boolean;
  onReply: (reply: Reply) => Promise<unknown>;
}

/** An answer to an agent's question. Enter sends, Shift-Enter begins a line; what was typed stays if sending fails. */
export function ReplyForm({ schema, busy, autoFocus, onReply }: ReplyFormProps) {
  const [text, setText] = useState("");
  const [data, setData] = useState<unknown>(() => (schema ? defaultsOf(schema) : undefined));
  const [tried, setTried] = useState(false);
  const problems = schema ? problemsOf(schema, data) : {};

  async function send(event?: FormEvent) {
    event?.preventDefault();
    setTried(true);
    if (busy || (schema ? Object.keys(problems).length > 0 : text.trim() === "")) return;
    // A refusal has been shown by whoever sends; the text is kept for another try.
    const sent = await onReply(schema ? { data } : { text }).then(
      () => true,
      () => false,
    );
    if (sent) setText("");
  }

  function onKeyDown(event: KeyboardEvent) {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      void send();
    }
  }

  return (
    <form onSubmit={(event) => void send(event)} className="flex flex-col gap-2">
      {schema ? (
        <SchemaForm schema={schema} value={data} onChange={setData} problems={tried ? problems : {}} />
      ) : (
        <Textarea aria-label="Your answer" placeholder="Your answer" rows={2} autoFocus={autoFocus} value={text} onChange={(event) => setText(event.target.value)} onKeyDown={onKeyDown} />
      )}
      <Button type="submit" kind="primary" className="self-end" busy={busy} disabled={!schema && text.trim() === ""} icon={<CornerDownLeft className="size-3.5" />}>
        Answer
      </Button>
    </form>
  );
}
