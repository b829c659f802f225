import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { keys } from "@/api/keys";
import type { ChatPage, ChatRow, ChatView, Model } from "@/api/types";
import { toast } from "@/ui";
import { forgetChat } from "./chats";

const pathOf = (id: string) => `/api/chats/${encodeURIComponent(id)}`;

export function useChats(q: string | undefined) {
  return useInfiniteQuery({
    queryKey: keys.chats({ q }),
    queryFn: ({ pageParam, signal }) => api.get<ChatPage>("/api/chats", { q, page: pageParam }, signal),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next,
    // While one types, what was found before stays.
    placeholderData: (before) => before,
  });
}

export function useStoredChat(id: string, enabled: boolean) {
  return useQuery({ queryKey: keys.chat(id), queryFn: ({ signal }) => api.get<ChatView>(pathOf(id), {}, signal), enabled });
}

export function useModels() {
  return useQuery({ queryKey: keys.models, queryFn: ({ signal }) => api.get<Model[]>("/api/models", {}, signal), staleTime: 60_000 });
}

export function useRenameChat() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ id, title }: { id: string; title: string }) => api.patch<ChatView>(pathOf(id), { title }),
    onSettled: (_view, _error, { id }) => {
      void client.invalidateQueries({ queryKey: ["chats"] });
      void client.invalidateQueries({ queryKey: keys.chat(id) });
    },
    onError: (error) => toast(error.message, "error"),
  });
}

export function useDeleteChat() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: (chat: ChatRow) => api.delete(pathOf(chat.id)),
    onSuccess: (_nothing, chat) => {
      forgetChat(chat.id);
      client.removeQueries({ queryKey: keys.chat(chat.id) });
      void client.invalidateQueries({ queryKey: ["chats"] });
    },
    onError: (error) => toast(error.message, "error"),
  });
}
