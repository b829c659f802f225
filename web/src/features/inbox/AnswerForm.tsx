import { Play } from "lucide-react";
import type { Question } from "@/api/types";
import { Button, Decision, type JsonSchema } from "@/ui";
import { ReplyForm } from "../tasks/canvas/ReplyForm";
import { subjectOf, useAnswer } from "./queries";

/** The form that answers a question, by its kind. `isSelected`: the user chose this question, so keys may decide it. */
export function AnswerForm({ question, isSelected = false }: { question: Question; isSelected?: boolean }) {
  const answer = useAnswer(question);
  if (question.kind === "approval") {
    return <Decision keys={isSelected ? { group: "Inbox", subject: subjectOf(question) } : undefined} busy={answer.isPending} onDecide={(approved, comment) => answer.mutateAsync({ kind: "decision", approved, comment })} />;
  }
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
