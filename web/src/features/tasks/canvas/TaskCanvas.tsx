import { Link } from "@tanstack/react-router";
import { CircleX } from "lucide-react";
import type { TaskView } from "@/api/types";
import { CopyButton, Duration, isEnded, isWaiting, Notice, Section, StateBadge, StateDot, Time } from "@/ui";
import { artifactsOf, messagesOf, plainText, statusMessage } from "../a2a";
import { useWaitsToResume, WAITS_TO_RESUME } from "../progress";
import { titleOf } from "../title";
import { useKeptSearch } from "../useKeptSearch";
import { Artifacts } from "./Artifacts";
import { Events } from "./Events";
import { History } from "./History";
import { Question } from "./Question";
import { TaskTimeline } from "./TaskTimeline";
import { Trace } from "./Trace";

/** Everything about one task, from what matters now to what happened in detail. */
export function TaskCanvas({ task }: { task: TaskView }) {
  const artifacts = artifactsOf(task.task);
  const messages = messagesOf(task.task);
  const waits = isWaiting(task.status) && (task.actions.includes("reply") || task.actions.includes("approve"));
  return (
    <div className="flex flex-col gap-6 px-5 py-5">
      <Facts task={task} />
      {waits && <Question task={task} />}
      {(task.status === "failed" || task.status === "rejected" || task.status === "unknown") && <Failure task={task} />}
      {artifacts.length > 0 && (
        <Section title={artifacts.length === 1 ? "Artifact" : `Artifacts (${artifacts.length})`}>
          <Artifacts artifacts={artifacts} isGrowing={task.status === "working"} />
        </Section>
      )}
      {task.children.length > 0 && <Children task={task} />}
      {messages.length > 0 && (
        <Section title="Conversation">
          <History messages={messages} agent={task.agent} />
        </Section>
      )}
      <TaskTimeline taskId={task.id} />
      <Events taskId={task.id} task={task.task} />
    </div>
  );
}

function Facts({ task }: { task: TaskView }) {
  const kept = useKeptSearch();
  const isLeft = useWaitsToResume(task.status, task.waitsToResume);
  return (
    <div className="flex flex-col gap-3">
      <div className="flex flex-wrap items-center gap-x-3 gap-y-1.5 text-sm text-soft">
        <StateBadge state={task.status} />
        <Link to="/agents/$slug" params={{ slug: task.slug }} className="link">
          {task.agent}
        </Link>
        <Duration start={task.createdAt} end={isEnded(task.status) ? task.updatedAt : null} />
        <span className="text-faint">
          {task.waiting === "execute" ? "planned" : "begun"} <Time at={task.createdAt} ago />
        </span>
      </div>
      {isLeft && (
        <p aria-live="polite" className="text-sm text-amber">
          {WAITS_TO_RESUME}. {task.waitsToResume ? "The node that worked on it is gone; the next one takes it over." : "The server is not reachable."}
        </p>
      )}
      {task.statusMessage && !isLeft && !isEnded(task.status) && !isWaiting(task.status) && (
        <p aria-live="polite" className="text-sm text-soft">
          {task.statusMessage}
        </p>
      )}
      <dl className="grid grid-cols-[80px_1fr] gap-y-0.5 text-xs">
        <Fact name="Task" text={task.id} copy />
        <dt className="text-faint">Context</dt>
        <dd className="truncate font-mono">
          <Link to="/tasks" search={{ contextId: task.contextId }} className="hover:underline" title="All tasks of this conversation">
            {task.contextId}
          </Link>
        </dd>
        {task.parentId && (
          <>
            <dt className="text-faint">Made by</dt>
            <dd className="truncate font-mono">
              <Link to="/tasks/$taskId" params={{ taskId: task.parentId }} search={kept} className="link">
                {task.parentId}
              </Link>
            </dd>
          </>
        )}
        {task.isRun && (
          <>
            <dt className="text-faint">Run</dt>
            <dd>
              <Link to="/runs/$runId" params={{ runId: task.id }} className="link">
                Steps, graph and document
              </Link>
            </dd>
          </>
        )}
        {task.chatId && (
          <>
            <dt className="text-faint">Chat</dt>
            <dd>
              <Link to="/chat/$chatId" params={{ chatId: task.chatId }} className="link">
                Open the chat it belongs to
              </Link>
            </dd>
          </>
        )}
        {task.owner && <Fact name="Owner" text={task.owner} />}
        {task.webhooks > 0 && (
          <>
            <dt className="text-faint">Webhooks</dt>
            <dd>
              <Link to="/deliveries" search={{ task: task.id }} className="link">
                {task.webhooks} registered
              </Link>
            </dd>
          </>
        )}
      </dl>
    </div>
  );
}

function Fact({ name, text, copy }: { name: string; text: string; copy?: boolean }) {
  return (
    <>
      <dt className="text-faint">{name}</dt>
      <dd className="flex min-w-0 items-center gap-1 font-mono">
        <span className="truncate" title={text}>{text}</span>
        {copy && <CopyButton text={text} label={`Copy the ${name.toLowerCase()}'s id`} className="-my-1.5" />}
      </dd>
    </>
  );
}

/** Each ending that needs attention, and what to do next. */
const NEXT: Record<string, string> = {
  failed: "What it made until then is kept. Send it again as a new task, or look at the events below for what led here.",
  rejected: "The agent did not take this on. Read its reason, change the request, and send it again.",
  unknown: "It is not known how this ended, and the work is not begun a second time by itself. Check with the agent, then send it again or cancel it.",
};

function Failure({ task }: { task: TaskView }) {
  const message = statusMessage(task.task);
  const text = (message && plainText(message.parts)) || task.statusMessage || "The agent gave no reason.";
  return (
    <Notice tone="red" icon={<CircleX className="mt-0.5 size-4 shrink-0 text-red" aria-hidden />}>
      <p className="font-medium break-words whitespace-pre-wrap">{text}</p>
      <Trace failure={task.failure} className="mt-2" />
      <p className="mt-1 text-soft">{NEXT[task.status]}</p>
    </Notice>
  );
}

function Children({ task }: { task: TaskView }) {
  const kept = useKeptSearch();
  return (
    <Section title={`Tasks it made (${task.children.length})`}>
      <ul className="overflow-hidden rounded-md border border-line">
        {task.children.map((child) => (
          <li key={child.id} className="border-line not-last:border-b">
            <Link to="/tasks/$taskId" params={{ taskId: child.id }} search={kept} className="flex h-9 items-center gap-2 px-3 text-sm hover:bg-hover">
              <StateDot state={child.status} />
              <span className="min-w-0 flex-1 truncate">{titleOf(child) ?? child.id}</span>
              <span className="text-xs text-faint">{child.agent}</span>
            </Link>
          </li>
        ))}
      </ul>
    </Section>
  );
}
