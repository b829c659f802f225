import { Check, Play, X } from "lucide-react";
import { useState } from "react";
import type { Question } from "@/api/types";
import { Button, Field, Input, useShortcut, type JsonSchema } from "@/ui";
import { ReplyForm } from "../tasks/canvas/ReplyForm";
import { useAnswer } from "./queries";

/** The form that answers a question, by its kind; in the inbox and on the canvas alike. */
export function AnswerForm({ question }: { question: Question }) {
  const answer = useAnswer(question);
  if (question.kind === "approval") return <Decision busy={answer.isPending} onDecide={(approved, comment) => answer.mutate({ kind: "decision", approved, comment })} />;
  if (question.kind === "execute") {
    return (
      <Button kind="primary" data-answer className="self-start" icon={<Play className="size-3.5" />} busy={answer.isPending} onClick={() => answer.mutate({ kind: "execute" })}>
        Execute
      </Button>
    );
  }
  if (question.kind === "event") return <p className="text-sm text-faint">It goes on when the event comes; open the run to send it by hand.</p>;
  return <ReplyForm schema={question.schema as JsonSchema | null} busy={answer.isPending} onReply={(reply) => answer.mutateAsync({ kind: "reply", ...reply })} />;
}

/** Yes or no, with a note that is kept. The letters work while nothing is being typed. */
function Decision({ busy, onDecide }: { busy: boolean; onDecide: (approved: boolean, comment: string) => void }) {
  const [comment, setComment] = useState("");
  useShortcut({ keys: "a", label: "Approve", group: "Inbox" }, () => onDecide(true, comment), !busy);
  useShortcut({ keys: "x", label: "Reject", group: "Inbox" }, () => onDecide(false, comment), !busy);
  return (
    <div className="flex flex-col gap-3">
      <Field label="Note" hint="Kept with the decision; may be left empty">
        <Input value={comment} onChange={(event) => setComment(event.target.value)} />
      </Field>
      <div className="flex gap-2">
        <Button kind="primary" icon={<Check className="size-3.5" />} busy={busy} onClick={() => onDecide(true, comment)}>
          Approve
        </Button>
        <Button kind="danger" icon={<X className="size-3.5" />} busy={busy} onClick={() => onDecide(false, comment)}>
          Reject
        </Button>
      </div>
    </div>
  );
}
