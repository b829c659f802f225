import { useNavigate, useSearch } from "@tanstack/react-router";
import { Inbox as InboxIcon } from "lucide-react";
import type { Question } from "@/api/types";
import { EmptyState, ErrorState, Page, SkeletonRows, useShortcut } from "@/ui";
import { TaskPanel } from "../tasks/TaskPanel";
import { QuestionCard } from "./QuestionCard";
import { useInbox } from "./queries";

/** Everything that waits for a person, the oldest first. The user opens one at a time: nothing opens by itself. */
export default function InboxPage() {
  const inbox = useInbox();
  const search = useSearch({ from: "/console/inbox" });
  const navigate = useNavigate({ from: "/inbox" });
  const items = inbox.data?.items ?? [];
  // An answered question leaves the list. None takes its place: a key or a second click would decide it unread.
  const open = items.find((item) => item.id === search.id);

  function select(question: Question | undefined) {
    if (!question) return;
    void navigate({ search: { id: question.id }, replace: true });
    document.getElementById(`question-${question.id}`)?.scrollIntoView({ block: "nearest" });
  }
  const move = (step: 1 | -1) => select(open ? items[items.indexOf(open) + step] : items[0]);

  useShortcut({ keys: "j", label: "Next question", group: "Inbox", repeats: true }, () => move(1));
  useShortcut({ keys: "k", label: "Previous question", group: "Inbox", repeats: true }, () => move(-1));
  useShortcut(
    { keys: "Enter", label: "Answer", group: "Inbox" },
    () => document.querySelector<HTMLElement>(`#question-${CSS.escape(open?.id ?? "")} :is(textarea, input, select, [data-answer])`)?.focus(),
    open !== undefined,
  );
  useShortcut({ keys: "o", label: "Open the task", group: "Inbox" }, () => open && void navigate({ search: { id: open.id, task: open.task.id } }), open !== undefined);

  return (
    <Page
      title="Inbox"
      count={inbox.data ? (items.length === 0 ? "Nothing waits" : `${items.length} waiting`) : undefined}
      panel={search.task && <TaskPanel key={search.task} taskId={search.task} onClose={() => void navigate({ search: { id: search.id } })} />}
      fill
    >
      {inbox.isPending ? (
        <SkeletonRows rows={5} label="Loading the inbox" />
      ) : inbox.isError && !inbox.data ? (
        <ErrorState title="The inbox could not be loaded" error={inbox.error} safe="What waits keeps waiting." onRetry={() => void inbox.refetch()} />
      ) : items.length === 0 ? (
        <EmptyState icon={InboxIcon} title="Nothing waits for you">
          Questions of agents, requests for credentials and steps to approve come here, and leave once anybody has answered.
        </EmptyState>
      ) : (
        <ol className="min-h-0 flex-1 overflow-y-auto">
          {items.map((question) => (
            <li key={question.id} id={`question-${question.id}`} className="border-b border-line">
              <QuestionCard
                question={question}
                isOpen={question === open}
                onSelect={() => select(question)}
                onOpenTask={() => void navigate({ search: { id: question.id, task: question.task.id } })}
              />
            </li>
          ))}
        </ol>
      )}
    </Page>
  );
}
