import { ReplyForm } from "@/features/tasks/canvas/ReplyForm";
import { Decision, type JsonSchema } from "@/ui";

/** What a person says to a question: words, or the values of a form. */
export interface Answer {
  text?: string;
  data?: unknown;
  /** The question that this answers, as far as it is known: the server refuses it if something else is asked by now. */
  question?: string;
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
  return <Decision busy={isBusy} onDecide={(approved, comment) => onAnswer({ data: comment ? { approved, comment } : { approved } })} />;
}
