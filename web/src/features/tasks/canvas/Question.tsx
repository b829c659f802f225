import { CircleAlert, KeyRound } from "lucide-react";
import type { TaskView } from "@/api/types";
import { AnswerForm } from "@/features/inbox/AnswerForm";
import { useInbox } from "@/features/inbox/queries";
import { Decision, Markdown, Notice, type JsonSchema } from "@/ui";
import { plainText, statusMessage } from "../a2a";
import { useTaskAction } from "../queries";
import { ReplyForm } from "./ReplyForm";

/** What the task waits for, and the form that answers it, in place. What the answer looks like is known from the inbox. */
export function Question({ task }: { task: TaskView }) {
  const questions = useInbox().data?.items.filter((item) => item.task.id === task.id && item.kind !== "execute") ?? [];
  const Icon = task.status === "auth-required" ? KeyRound : CircleAlert;
  const icon = <Icon className="mt-0.5 size-4 shrink-0 text-amber" aria-hidden />;
  if (questions.length === 0) {
    return (
      <Notice tone="amber" icon={icon}>
        <Asked task={task} />
      </Notice>
    );
  }
  return questions.map((question) => (
    <Notice key={question.id} tone="amber" icon={icon}>
      <div className="flex flex-col gap-3">
        <Markdown text={question.text} />
        <AnswerForm question={question} />
      </div>
    </Notice>
  ));
}

/** The question as the task itself has it: for the moment until the inbox knows, and for those who see no inbox. */
function Asked({ task }: { task: TaskView }) {
  const reply = useTaskAction(task.id, "reply");
  const message = statusMessage(task.task);
  const question = message?.id || task.question?.id;
  const text = (message && plainText(message.parts)) || task.question?.text || "The agent waits for more.";
  return (
    <div className="flex flex-col gap-3">
      <Markdown text={text} />
      {task.waiting === "approval" ? (
        <Decision busy={reply.isPending} onDecide={(approved, comment) => reply.mutateAsync({ question, data: { approved, comment } })} />
      ) : (
        <ReplyForm schema={(task.question?.schema ?? null) as JsonSchema | null} busy={reply.isPending} onReply={(body) => reply.mutateAsync({ ...body, question })} />
      )}
    </div>
  );
}
