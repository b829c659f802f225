import { type Chat, useChat } from "@ai-sdk/react";
import { useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useRef } from "react";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import type { ChatView } from "@/api/types";
import { useConnection } from "@/live/live";
import { toast } from "@/ui";
import { type Attachment } from "./attachments";
import { beginChat, chatOf, isFresh, settleChat } from "./chats";
import type { ChatMessage } from "./message";
import { useStoredChat } from "./queries";
import { isCutOff, reconcile } from "./reconcile";

/** Tokens may come a thousand a second; the page is drawn this often. */
const THROTTLE_MS = 60;

const storedMessages = (view: ChatView) => view.messages as unknown as ChatMessage[];

const isComing = (chat: Chat<ChatMessage>) => chat.status === "submitted" || chat.status === "streaming";
const resuming = new WeakSet<Chat<ChatMessage>>();

/** Goes on with an answer that is still coming, once at a time. It is told from its begin: what there is of it goes. */
async function resume(chat: Chat<ChatMessage>): Promise<void> {
  if (resuming.has(chat) || isComing(chat)) return;
  resuming.add(chat);
  try {
    if (isCutOff(chat.messages.at(-1))) chat.messages = chat.messages.slice(0, -1);
    chat.clearError();
    await chat.resumeStream();
  } finally {
    resuming.delete(chat);
  }
}

/** One chat: what was said, what is being said, and what one can do. It goes on when the page is left. */
export function useConversation(id: string, isNew: boolean) {
  const client = useQueryClient();
  const chat = chatOf(id);
  const { messages, status, error, sendMessage, regenerate, stop, clearError } = useChat<ChatMessage>({ chat, throttle: THROTTLE_MS });
  const isBusy = status === "submitted" || status === "streaming";
  const stored = useStoredChat(id, !isNew && !isFresh(id) && !isBusy);
  const connection = useConnection();

  /** Shows what the server has, and goes on with an answer that is still coming. */
  const follow = useCallback(
    async (view: ChatView) => {
      if (isComing(chat) || resuming.has(chat)) return;
      const next = reconcile(chat.messages, storedMessages(view));
      // The library's chat is no state of React: one sets its messages.
      // oxlint-disable-next-line react/immutability
      if (next.length !== chat.messages.length || next.some((message, index) => message !== chat.messages[index])) chat.messages = next;
      if (view.chat.isActive) await resume(chat);
    },
    [chat],
  );

  const recover = useCallback(async () => {
    const view = await client.fetchQuery({ queryKey: keys.chat(id), queryFn: () => api.get<ChatView>(`/api/chats/${encodeURIComponent(id)}`), staleTime: 0 });
    if (isComing(chat) || resuming.has(chat)) return;
    const known = storedMessages(view);
    const question = chat.messages.findLast((message) => message.role === "user");
    // What never arrived stays, to be sent again.
    if (question && !known.some((message) => message.id === question.id)) return;
    // oxlint-disable-next-line react/immutability
    chat.messages = known;
    chat.clearError();
    if (view.chat.isActive) await resume(chat);
  }, [chat, client, id]);

  const view = stored.data;
  useEffect(() => {
    if (view) void follow(view);
  }, [view, follow]);

  // When an answer has ended, the server has it too, with what only it knows.
  const wasBusy = useRef(isBusy);
  const isAnswered = messages.at(-1)?.role === "assistant";
  useEffect(() => {
    if (wasBusy.current && !isBusy && (isAnswered || !isFresh(id))) {
      settleChat(id);
      void client.invalidateQueries({ queryKey: keys.chat(id) });
    }
    wasBusy.current = isBusy;
  }, [isBusy, isAnswered, client, id]);

  // The server was gone in the middle of an answer and is back: the run went on without us, or will.
  const hasFailed = status === "error" && messages.at(-1)?.metadata?.finishReason === undefined;
  useEffect(() => {
    if (hasFailed && connection === "live" && !isFresh(id)) recover().catch(() => undefined);
  }, [hasFailed, connection, recover, id]);

  const send = useCallback(
    (agent: string, text: string, files: readonly Attachment[] = []) => {
      if (chat.messages.length === 0) beginChat(id);
      const parts: ChatMessage["parts"] = [
        ...files.map((file) => ({ type: "file" as const, mediaType: file.mediaType, filename: file.name, url: file.url })),
        ...(text ? [{ type: "text" as const, text }] : []),
      ];
      void sendMessage({ parts }, { body: { agent } });
    },
    [chat, id, sendMessage],
  );

  const answer = useCallback((agent: string, data: Record<string, unknown>, question?: string) => void sendMessage({ parts: [{ type: "data-reply", id: question, data }] }, { body: { agent } }), [sendMessage]);

  const again = useCallback((agent: string) => void regenerate({ body: { agent } }), [regenerate]);

  /** Sends the last message once more, as the same one: if it did arrive, its answer is read. */
  const resend = useCallback(
    (agent: string) => {
      const last = chat.messages.at(-1);
      if (last?.role === "user") void sendMessage({ parts: last.parts, messageId: last.id }, { body: { agent } });
    },
    [chat, sendMessage],
  );

  /** The run is stopped at the server; its stream then says so. Only if that cannot be reached is it left here. */
  const halt = useCallback(async () => {
    try {
      await api.post(`/api/chat/${encodeURIComponent(id)}/stop`);
    } catch (problem) {
      toast(problem instanceof Error ? problem.message : "The answer could not be stopped", "error");
      await stop();
    }
  }, [id, stop]);

  return { messages, status, error, isBusy, stored, send, answer, again, resend, halt, recover, clearError };
}
