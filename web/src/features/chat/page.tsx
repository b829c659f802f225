import { Outlet, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { MessageSquarePlus, PanelLeft } from "lucide-react";
import { useEffect, useState } from "react";
import { usePaletteAction } from "@/app/actions";
import { TaskPanel } from "@/features/tasks/TaskPanel";
import { cx, Dialog, IconButton, useShortcut } from "@/ui";
import { plainText } from "./blocks";
import { ChatList } from "./ChatList";
import { chatOf, isFresh, newChatId } from "./chats";
import { Conversation } from "./Conversation";
import { useChats, useStoredChat } from "./queries";

/** Chat: the list on the left (a drawer where there is no room), the conversation, and a task's canvas beside it. */
export default function ChatPage() {
  const navigate = useNavigate();
  const { q, task, agent } = useSearch({ from: "/console/chat" });
  const { chatId } = useParams({ strict: false }) as { chatId?: string };
  const [draftId, setDraftId] = useState(newChatId);
  const [isDrawn, setDrawn] = useState(false);

  // A chat that has begun has its own address; the next one gets another id.
  useEffect(() => {
    // oxlint-disable-next-line react/set-state-in-effect
    if (chatId === draftId) setDraftId(newChatId());
  }, [chatId, draftId]);

  function begin() {
    setDrawn(false);
    void navigate({ to: "/chat", search: (kept) => ({ q: kept.q }) });
  }
  useShortcut({ keys: "n", label: "New chat", group: "Chat" }, begin);
  usePaletteAction({ id: "chat-new", label: "New chat", group: "Chat", keywords: "begin talk" }, begin);

  const list = (
    <ChatList
      selected={chatId}
      q={q}
      onSearch={(text) => void navigate({ to: ".", search: (kept: object) => ({ ...kept, q: text || undefined }), replace: true })}
      onNew={begin}
      onChosen={() => setDrawn(false)}
      onDeleted={(id) => id === chatId && begin()}
    />
  );

  return (
    <div className="flex h-full min-w-0">
      <aside aria-label="Chats" className={cx("w-64 shrink-0 border-r border-line max-rail:hidden", task && "max-[1560px]:hidden")}>
        {list}
      </aside>
      <section className="flex h-full min-w-0 flex-1 flex-col">
        <header className={cx("flex h-12 shrink-0 items-center gap-1 border-b border-line px-3", !task && "rail:px-6")}>
          <IconButton label="Chats" onClick={() => setDrawn(true)} className={cx(task ? "min-[1561px]:hidden" : "rail:hidden")}>
            <PanelLeft />
          </IconButton>
          <h1 className="min-w-0 flex-1 truncate px-1 font-semibold">
            <Title chatId={chatId} q={q} />
          </h1>
          <IconButton label="New chat (n)" onClick={begin} className={cx(task ? "min-[1561px]:hidden" : "rail:hidden")}>
            <MessageSquarePlus />
          </IconButton>
        </header>
        {chatId ? <Outlet /> : <Conversation key={draftId} id={draftId} isNew wanted={agent} openTask={task} />}
      </section>
      {task && <TaskPanel taskId={task} onClose={() => void navigate({ to: ".", search: (kept: object) => ({ ...kept, task: undefined }) })} />}
      <Dialog title="Chats" open={isDrawn} onClose={() => setDrawn(false)}>
        <div className="-mx-3 h-[60vh]">{list}</div>
      </Dialog>
    </div>
  );
}

function Title({ chatId, q }: { chatId: string | undefined; q: string | undefined }) {
  const chats = useChats(q);
  const row = chats.data?.pages.flatMap((page) => page.items).find((item) => item.id === chatId);
  // A chat may be further down than the list goes, or so new that it is not in it.
  const stored = useStoredChat(chatId ?? "", chatId !== undefined && row === undefined && !isFresh(chatId));
  if (!chatId) return "New chat";
  const first = chatOf(chatId).messages[0];
  return row?.title || stored.data?.chat.title || (first && plainText(first)) || "Chat";
}
