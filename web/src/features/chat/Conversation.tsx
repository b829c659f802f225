import { ArrowDown, CircleAlert, CircleX, Unplug } from "lucide-react";
import { useMemo, useState } from "react";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api, ApiError } from "@/api/client";
import type { Model } from "@/api/types";
import { Button, ConfirmDialog, cx, EmptyState, ErrorState, Notice, SkeletonText, toast } from "@/ui";
import type { Attachment } from "./attachments";
import { NEW, lastAgent, rememberAgent } from "./chats";
import { Composer } from "./Composer";
import { CutOff, Message, type MessageActions } from "./Message";
import { useModels } from "./queries";
import { isCutOff, isLost, problemOf } from "./reconcile";
import { TaskRowsProvider, useTasksOfContext } from "./taskRows";
import { openTasksOf, taskOfAnswer, type Chip } from "./tasks";
import { useConversation } from "./useConversation";
import { useStick } from "./useStick";
import { Welcome } from "./Welcome";

interface ConversationProps {
  id: string;
  /** A chat that has not begun; the first message gives it its address. */
  isNew: boolean;
  /** The agent that the address asks for. */
  wanted?: string;
  openTask: string | undefined;
}

const NO_MODELS: readonly Model[] = [];
const NO_TASKS: readonly Chip[] = [];

/** A conversation: 720 px of what was said, and the composer below it. */
export function Conversation({ id, isNew, wanted, openTask }: ConversationProps) {
  const navigate = useNavigate();
  const client = useQueryClient();
  const talk = useConversation(id, isNew);
  const models = useModels();
  const [picked, setPicked] = useState<string | null>(null);
  const [repeats, setRepeats] = useState(false);
  const { messages, stored, send: tell, answer, again } = talk;
  const known = models.data ?? NO_MODELS;
  const lastUsed = messages.findLast((message) => message.metadata?.agent)?.metadata?.agent ?? stored.data?.chat.agent;
  const agent = pick(known, picked, wanted, lastUsed, isNew ? lastAgent() : null);
  const nameOf = (slug: string | undefined) => known.find((model) => model.id === slug)?.name ?? slug ?? "Agent";
  const contextId = stored.data?.chat.contextId ?? messages.findLast((message) => message.metadata?.contextId)?.metadata?.contextId;
  const tasks = useTasksOfContext(contextId);
  const { view, content, onScroll, toEnd, isAway, hasMore } = useStick(id);
  const last = messages.at(-1);
  const isComing = talk.isBusy && last?.role === "assistant";
  const ownTask = talk.isBusy ? null : taskOfAnswer(last, tasks.rows);
  const undecided = ownTask?.waits === "approve" ? ownTask : null;
  const openTasks = talk.isBusy ? NO_TASKS : openTasksOf(last, tasks.rows);
  const isOpen = openTasks.length > 0;
  const isReply = ownTask !== null && messages.slice(0, -1).some((message) => message.metadata?.taskId === ownTask.id);
  // A message to another agent begins a task of its own.
  const blocked = undecided && agent === (last?.metadata?.agent ?? agent) ? `"${undecided.title}" waits for your decision: approve or reject it above. A message decides nothing, and is not sent before.` : undefined;

  function choose(slug: string) {
    setPicked(slug);
    rememberAgent(slug);
  }

  function send(text: string, files: readonly Attachment[] = [], to = agent) {
    tell(to, text, files);
    toEnd();
    if (isNew) void navigate({ to: "/chat/$chatId", params: { chatId: id }, search: (kept) => ({ ...kept, agent: undefined }), replace: true });
    void client.invalidateQueries({ queryKey: ["chats"] });
  }

  const actions = useMemo<MessageActions>(
    () => ({
      openTask,
      onOpenTask: (taskId) => void navigate({ to: ".", search: (kept: object) => ({ ...kept, task: taskId }) }),
      onAnswer: async ({ text, data, question }) => {
        if (data !== undefined) answer(lastUsed ?? agent, data as Record<string, unknown>, question);
        else tell(lastUsed ?? agent, text ?? "");
      },
      onRegenerate: isReply ? undefined : () => (isOpen ? setRepeats(true) : again(lastUsed ?? agent)),
    }),
    [openTask, navigate, answer, tell, again, lastUsed, agent, isOpen, isReply],
  );

  const isMissing = stored.error instanceof ApiError && stored.error.status === 404 && messages.length === 0;
  const isUnknown = wanted !== undefined && picked === null && known.length > 0 && !known.some((model) => model.id === wanted);
  const isLoading = !isNew && messages.length === 0 && stored.isPending && stored.fetchStatus === "fetching";

  return (
    <TaskRowsProvider value={tasks}>
      <div className="relative flex min-h-0 flex-1 flex-col">
        <div ref={view} onScroll={onScroll} tabIndex={-1} className="min-h-0 flex-1 overflow-y-auto [scrollbar-gutter:stable_both-edges]">
          <div ref={content} role="log" aria-label="Conversation" aria-live="off" className={cx("mx-auto flex w-full max-w-[720px] flex-col gap-6 px-6 py-6 max-phone:px-4", messages.length === 0 && "min-h-full justify-center")}>
            {isLoading && <SkeletonText lines={5} label="Loading the chat" />}
            {isMissing && <EmptyState title="There is no such chat">It may have been deleted, or it belongs to somebody else.</EmptyState>}
            {stored.isError && !isMissing && messages.length === 0 && (
              <ErrorState title="The chat could not be loaded" error={stored.error} safe="Nothing is lost: it is kept on the server." onRetry={() => void stored.refetch()} />
            )}
            {isUnknown && messages.length === 0 && <Unknown wanted={wanted} name={nameOf(agent)} />}
            {messages.length === 0 && !isLoading && !isMissing && !stored.isError && (
              <Welcome
                models={models.data}
                onPrompt={(prompt, slug) => {
                  choose(slug);
                  send(prompt, [], slug);
                }}
              />
            )}
            {messages.map((message, index) => (
              <Message
                key={message.id}
                message={message}
                agent={nameOf(message.metadata?.agent ?? lastUsed)}
                isLast={index === messages.length - 1}
                isComing={isComing && index === messages.length - 1}
                actions={actions}
              />
            ))}
            {talk.isBusy && last?.role === "user" && <Pending name={nameOf(agent)} />}
            {!talk.isBusy && talk.status !== "error" && isCutOff(last) && <CutOff onContinue={() => void talk.recover().catch(() => undefined)} />}
            {talk.status === "error" && !last?.metadata?.finishReason && <Failure error={talk.error} hasAnswer={last?.role === "assistant"} onRetry={() => (last?.role === "assistant" ? void talk.recover().catch(() => undefined) : talk.resend(agent))} />}
          </div>
        </div>
        <div className="relative mx-auto w-full max-w-[720px] shrink-0 px-6 pt-2 pb-5 max-phone:px-3 max-phone:pb-3">
          {isAway && (
            <Button size="small" icon={<ArrowDown className="size-3.5" />} onClick={toEnd} className="absolute -top-9 left-1/2 -translate-x-1/2 animate-enter shadow-float">
              {hasMore ? "New messages" : "To the end"}
            </Button>
          )}
          {isOpen && (
            <Repeat
              tasks={openTasks}
              open={repeats}
              onConfirm={() => {
                setRepeats(false);
                // The server cancels the task of the answer itself.
                void cancelTasks(openTasks.filter((task) => task.id !== ownTask?.id)).then(() => again(lastUsed ?? agent));
              }}
              onClose={() => setRepeats(false)}
            />
          )}
          <Composer
            draft={isNew ? NEW : id}
            models={known}
            agent={agent}
            onAgent={choose}
            isBusy={talk.isBusy}
            blocked={blocked}
            placeholder={`Message ${nameOf(agent)}`}
            onSend={(text, files) => send(text, files)}
            onStop={() => void talk.halt()}
          />
        </div>
      </div>
    </TaskRowsProvider>
  );
}

/** Asks before an answer is given again whose tasks have not ended. */
function Repeat({ tasks, open, onConfirm, onClose }: { tasks: readonly Chip[]; open: boolean; onConfirm: () => void; onClose: () => void }) {
  const isOne = tasks.length === 1;
  return (
    <ConfirmDialog
      title={`Cancel ${isOne ? "the open task" : `${tasks.length} open tasks`} and answer again?`}
      open={open}
      action={`Cancel ${isOne ? "it" : "them"} and answer again`}
      onConfirm={onConfirm}
      onClose={onClose}
    >
      {tasks.map((task) => (
        <p key={task.id}>
          "{task.title}" has not ended{task.waits ? `: it waits for ${task.waits === "execute" ? "its start" : "your answer"}` : ""}.
        </p>
      ))}
      <p className="mt-2">{isOne ? "It is" : "They are"} canceled, and your message is sent again as a new task. What {isOne ? "it" : "they"} did outside is done a second time.</p>
    </ConfirmDialog>
  );
}

/** Cancels tasks that an answer planned or began, before it makes way. */
async function cancelTasks(tasks: readonly Chip[]): Promise<void> {
  const results = await Promise.allSettled(tasks.map((task) => api.post(`/api/tasks/${encodeURIComponent(task.id)}/cancel`)));
  for (const result of results) if (result.status === "rejected") toast(result.reason instanceof Error ? result.reason.message : "A task could not be canceled", "error");
}

/** Who is asked next: who was picked, else who was asked here, else who was picked elsewhere, else the default. */
function pick(models: readonly Model[], ...wishes: (string | null | undefined)[]): string {
  const found = wishes.find((wish) => wish && models.some((model) => model.id === wish));
  return found ?? models.find((model) => model.isDefault)?.id ?? models[0]?.id ?? "";
}

/** The address names an agent that is not there: who is asked instead is said, not found out. */
function Unknown({ wanted, name }: { wanted: string; name: string }) {
  return (
    <Notice tone="amber" icon={<CircleAlert className="mt-0.5 size-4 shrink-0 text-amber" aria-hidden />}>
      <p className="break-words">
        There is no agent <code>{wanted}</code> here; it may not be served any more, or it is not for you. Below is {name}: choose another if you like.
      </p>
    </Notice>
  );
}

function Pending({ name }: { name: string }) {
  return (
    <div role="status" aria-label={`${name} is about to answer`} className="flex h-5 items-center gap-1">
      {[0, 1, 2].map((at) => (
        <span key={at} className="size-1.5 animate-pulse-slow rounded-full bg-faint" style={{ animationDelay: `${at * 200}ms` }} />
      ))}
    </div>
  );
}

function Failure({ error, hasAnswer, onRetry }: { error: Error | undefined; hasAnswer: boolean; onRetry: () => void }) {
  const Icon = isLost(error) ? Unplug : CircleX;
  return (
    <Notice tone={isLost(error) ? "amber" : "red"} icon={<Icon className={cx("mt-0.5 size-4 shrink-0", isLost(error) ? "text-amber" : "text-red")} aria-hidden />}>
      <div className="flex flex-wrap items-center gap-3">
        <p className="min-w-0 flex-1 break-words">{problemOf(error, hasAnswer)}</p>
        <Button size="small" onClick={onRetry}>
          {hasAnswer ? "Go on" : "Try again"}
        </Button>
      </div>
    </Notice>
  );
}
