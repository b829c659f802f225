import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import type { Inbox, Question } from "@/api/types";
import { toast } from "@/ui/Toast";
import { titleOf } from "../tasks/title";

/** Everything that waits for a person; the rail counts it, the inbox shows it. */
export function useInbox() {
  return useQuery({ queryKey: keys.inbox, queryFn: ({ signal }) => api.get<Inbox>("/api/inbox", {}, signal) });
}

/** An answer to a question: words or data for an agent, a decision for a step, a signal for an event. */
export type Answer = { kind: "reply"; text?: string; data?: unknown } | { kind: "decision"; approved: boolean; comment: string } | { kind: "execute" };

/** What an answer is about, in the words of the list: the task, and of a run the step. */
export function subjectOf(question: Question): string {
  const title = titleOf(question.task) ?? question.task.id;
  return question.step ? `${title}: ${question.step}` : title;
}

const doneTo = (answer: Answer): string => (answer.kind === "reply" ? "Answered" : answer.kind === "execute" ? "Started" : answer.approved ? "Approved" : "Rejected");

function send(question: Question, answer: Answer): Promise<unknown> {
  const task = `/api/tasks/${encodeURIComponent(question.task.id)}`;
  if (answer.kind === "execute") return api.post(`${task}/execute`);
  const asked = { question: question.message };
  if (answer.kind === "reply") return api.post(`${task}/reply`, { ...asked, text: answer.text, data: answer.data });
  const decision = { approved: answer.approved, comment: answer.comment };
  if (question.run === null || question.step === null) return api.post(`${task}/reply`, { ...asked, data: decision });
  return api.post(`/api/runs/${encodeURIComponent(question.run)}/approvals/${encodeURIComponent(question.step)}`, decision);
}

/** Answered is gone from the list at once; after a refusal the list is read again, since somebody else may have been quicker. */
export function useAnswer(question: Question) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (answer: Answer) => send(question, answer),
    onSuccess: (_, answer) => {
      client.setQueryData<Inbox>(keys.inbox, (inbox) => inbox && { ...inbox, items: inbox.items.filter((item) => item.id !== question.id) });
      void client.invalidateQueries({ queryKey: keys.task(question.task.id) });
      toast(`${doneTo(answer)}: ${subjectOf(question)}`);
    },
    onError: (error) => {
      toast(error.message, "error");
      void client.invalidateQueries({ queryKey: keys.inbox });
    },
  });
}
