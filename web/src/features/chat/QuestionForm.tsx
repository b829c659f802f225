import { Check, X } from "lucide-react";
import { useState } from "react";
import { ReplyForm } from "@/features/tasks/canvas/ReplyForm";
import { Button, Input, type JsonSchema } from "@/ui";

/** What a person says to a question: words, or the values of a form. */
export interface Answer {
  text?: string;
  data?: unknown;
}

interface QuestionFormProps {
  schema: JsonSchema | null;
  isApproval: boolean;
  isBusy: boolean;
  onAnswer: (answer: Answer) => Promise<unknown>;
}

/** The smallest form that answers: yes or no, the fields that the agent wants, or words. */
export function QuestionForm({ schema, isApproval, isBusy, onAnswer }: QuestionFormProps) {
  if (!isApproval) return <ReplyForm schema={schema} busy={isBusy} onReply={onAnswer} />;
  return <Decision isBusy={isBusy} onDecide={(approved, comment) => onAnswer({ data: comment ? { approved, comment } : { approved } })} />;
}

function Decision({ isBusy, onDecide }: { isBusy: boolean; onDecide: (approved: boolean, comment: string) => Promise<unknown> }) {
  const [comment, setComment] = useState("");
  const [decided, setDecided] = useState<boolean | null>(null);
  const decide = (approved: boolean) => {
    setDecided(approved);
    // A refusal has been shown by whoever sends; one may decide again.
    onDecide(approved, comment.trim()).then(undefined, () => setDecided(null));
  };
  return (
    <form
      className="flex flex-wrap items-center gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        decide(true);
      }}
    >
      <Input aria-label="Comment" placeholder="Comment (optional)" value={comment} onChange={(event) => setComment(event.target.value)} className="min-w-40 flex-1 basis-40 max-phone:basis-full" />
      <Button icon={<X className="size-3.5" />} disabled={decided !== null} busy={isBusy && decided === false} onClick={() => decide(false)}>
        Reject
      </Button>
      <Button type="submit" kind="primary" icon={<Check className="size-3.5" />} disabled={decided !== null} busy={isBusy && decided === true}>
        Approve
      </Button>
    </form>
  );
}
