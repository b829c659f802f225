import "./strict";
import { Chat } from "@ai-sdk/react";
import { createIdGenerator, DefaultChatTransport } from "ai";
import { apiUrl } from "@/api/client";
import type { ChatMessage } from "./message";

/*
 * The chats of this tab, outside React: a chat goes on being answered while one looks at another page. Those that are
 * at rest and were not looked at for long are forgotten; the server has them.
 */
const chats = new Map<string, Chat<ChatMessage>>();
const KEPT = 20;
/** Chats that the server does not know yet: their first message is on its way. */
const fresh = new Set<string>();
const newId = createIdGenerator({ size: 24 });

const transport = new DefaultChatTransport<ChatMessage>({
  api: apiUrl("/api/chat"),
  // The server keeps the history: only what is new is sent.
  prepareSendMessagesRequest: ({ id, messages, trigger, messageId, body }) => ({ body: { ...body, id, message: messages.at(-1), trigger, messageId } }),
  prepareReconnectToStreamRequest: ({ id }) => ({ api: apiUrl(`/api/chat/${encodeURIComponent(id)}/stream`) }),
});

export function newChatId(): string {
  return newId();
}

export function chatOf(id: string): Chat<ChatMessage> {
  let chat = chats.get(id);
  if (chat) {
    chats.delete(id);
  } else {
    chat = new Chat<ChatMessage>({ id, transport, generateId: newId, messages: [] });
  }
  chats.set(id, chat);
  forgetSome();
  return chat;
}

function forgetSome(): void {
  for (const [id, chat] of chats) {
    if (chats.size <= KEPT) return;
    if (chat.status === "ready") chats.delete(id);
  }
}

export function forgetChat(id: string): void {
  void chats.get(id)?.stop();
  chats.delete(id);
}

/** Says that a chat begins here and now, so that nobody asks the server for it too soon. */
export function beginChat(id: string): void {
  fresh.add(id);
}

export const isFresh = (id: string): boolean => fresh.has(id);

export function settleChat(id: string): void {
  fresh.delete(id);
}

// --- what was typed and not sent --------------------------------------------------------------------------------------

const drafts = new Map<string, string>();
/** The draft of a chat that has not begun. */
export const NEW = "new";

export const draftOf = (id: string): string => drafts.get(id) ?? "";
export function keepDraft(id: string, text: string): void {
  if (text) drafts.set(id, text);
  else drafts.delete(id);
}

// --- the agent that was chosen last -----------------------------------------------------------------------------------

const KEY = "accord.chat.agent";

export function lastAgent(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    // Storage may be blocked: then nothing is remembered.
    return null;
  }
}

export function rememberAgent(slug: string): void {
  try {
    localStorage.setItem(KEY, slug);
  } catch {
    // See lastAgent.
  }
}
