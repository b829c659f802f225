import { Link } from "@tanstack/react-router";
import { Ellipsis, MessageSquarePlus, Pencil, Trash2 } from "lucide-react";
import { useMemo, useState } from "react";
import type { ChatRow } from "@/api/types";
import { Button, ConfirmDialog, cx, Dialog, Field, Input, Menu, SearchInput, Skeleton, StateDot, Time, useNow } from "@/ui";
import { useChats, useDeleteChat, useModels, useRenameChat } from "./queries";
import { ageOf } from "./reconcile";

interface ChatListProps {
  selected: string | undefined;
  q: string | undefined;
  onSearch: (q: string) => void;
  onNew: () => void;
  /** A chat was chosen: a drawer closes. */
  onChosen?: () => void;
  onDeleted: (id: string) => void;
}

/** The chats, newest first, under the day on which something was last said in them. */
export function ChatList({ selected, q, onSearch, onNew, onChosen, onDeleted }: ChatListProps) {
  const chats = useChats(q);
  const models = useModels();
  const [renaming, setRenaming] = useState<ChatRow | null>(null);
  const [deleting, setDeleting] = useState<ChatRow | null>(null);
  const today = new Date(useNow()).toDateString();
  const rows = useMemo(() => chats.data?.pages.flatMap((page) => page.items) ?? [], [chats.data]);
  const groups = useMemo(() => Map.groupBy(rows, (row) => ageOf(row.updatedAt, new Date(today))), [rows, today]);
  const nameOf = (slug: string) => models.data?.find((model) => model.id === slug)?.name ?? slug;
  return (
    <div className="flex h-full min-h-0 flex-col">
      <div className="flex flex-col gap-2 p-3">
        <Button icon={<MessageSquarePlus className="size-4" />} onClick={onNew} className="w-full">
          New chat
        </Button>
        <SearchInput label="Search chats" value={q ?? ""} onChange={(event) => onSearch(event.target.value)} className="w-full" />
      </div>
      <nav aria-label="Chats" className="min-h-0 flex-1 overflow-y-auto px-2 pb-3">
        {chats.isPending && <Loading />}
        {chats.isError && !chats.data && <p className="px-2 py-4 text-sm text-faint">The chats could not be loaded: {chats.error.message}</p>}
        {chats.data && rows.length === 0 && <p className="px-2 py-3 text-sm text-faint">{q ? "No chat has these words" : "What you say is kept here"}</p>}
        {[...groups].map(([age, items]) => (
          <section key={age} className="mb-3">
            <h3 className="px-2 py-1 text-xs text-faint">{age}</h3>
            <ul>
              {items.map((row) => (
                <Entry key={row.id} row={row} agent={nameOf(row.agent)} isSelected={row.id === selected} onChosen={onChosen} onRename={() => setRenaming(row)} onDelete={() => setDeleting(row)} />
              ))}
            </ul>
          </section>
        ))}
        {chats.hasNextPage && (
          <Button kind="ghost" size="small" busy={chats.isFetchingNextPage} onClick={() => void chats.fetchNextPage()} className="w-full">
            Older chats
          </Button>
        )}
      </nav>
      {renaming && <Rename chat={renaming} onClose={() => setRenaming(null)} />}
      {deleting && <Delete chat={deleting} onClose={() => setDeleting(null)} onDeleted={onDeleted} />}
    </div>
  );
}

interface EntryProps {
  row: ChatRow;
  agent: string;
  isSelected: boolean;
  onChosen?: () => void;
  onRename: () => void;
  onDelete: () => void;
}

function Entry({ row, agent, isSelected, onChosen, onRename, onDelete }: EntryProps) {
  const items = [
    { label: "Rename", icon: <Pencil />, onSelect: onRename },
    { label: "Delete", icon: <Trash2 />, danger: true, onSelect: onDelete },
  ];
  return (
    <li className={cx("group relative flex items-center rounded-md", isSelected ? "bg-active" : "hover:bg-hover")}>
      <Link
        to="/chat/$chatId"
        params={{ chatId: row.id }}
        search={(kept) => ({ ...kept, task: undefined, agent: undefined })}
        onClick={onChosen}
        aria-current={isSelected ? "page" : undefined}
        className="min-w-0 flex-1 rounded-md px-2 py-1.5 pr-9"
      >
        <span className="flex items-center gap-1.5">
          {row.isActive && <StateDot state="working" className="-ml-0.5" />}
          <span className={cx("truncate text-sm", isSelected && "font-medium")}>{row.title || "New chat"}</span>
        </span>
        <span className="flex gap-1 text-xs text-faint">
          <span className="truncate">{agent}</span>
          <span aria-hidden>·</span>
          <Time at={row.updatedAt} className="shrink-0" />
        </span>
      </Link>
      <span className="absolute right-1 opacity-0 group-focus-within:opacity-100 group-hover:opacity-100 has-[[aria-expanded=true]]:opacity-100 [@media(hover:none)]:opacity-100">
        <Menu label={`Actions for ${row.title || "this chat"}`} icon={<Ellipsis />} items={items} />
      </span>
    </li>
  );
}

function Loading() {
  return (
    <div role="status" aria-label="Loading the chats" className="flex flex-col gap-4 px-2 py-3">
      {["w-3/4", "w-1/2", "w-2/3", "w-3/5"].map((width) => (
        <span key={width} className="flex flex-col gap-1.5">
          <Skeleton className={cx("h-3", width)} />
          <Skeleton className="h-2.5 w-1/3" />
        </span>
      ))}
    </div>
  );
}

function Rename({ chat, onClose }: { chat: ChatRow; onClose: () => void }) {
  const [title, setTitle] = useState(chat.title);
  const rename = useRenameChat();
  const isReady = title.trim() !== "" && title.trim() !== chat.title;
  function save() {
    if (isReady) rename.mutate({ id: chat.id, title: title.trim() }, { onSuccess: onClose });
  }
  const footer = (
    <>
      <Button onClick={onClose}>Keep as it is</Button>
      <Button kind="primary" disabled={!isReady} busy={rename.isPending} onClick={save}>
        Rename
      </Button>
    </>
  );
  return (
    <Dialog title="Rename the chat" open onClose={onClose} footer={footer}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          save();
        }}
      >
        <Field label="Title">
          <Input value={title} maxLength={200} autoFocus onChange={(event) => setTitle(event.target.value)} />
        </Field>
      </form>
    </Dialog>
  );
}

function Delete({ chat, onClose, onDeleted }: { chat: ChatRow; onClose: () => void; onDeleted: (id: string) => void }) {
  const remove = useDeleteChat();
  return (
    <ConfirmDialog
      title="Delete this chat?"
      action="Delete the chat"
      open
      busy={remove.isPending}
      onClose={onClose}
      onConfirm={() =>
        remove.mutate(chat, {
          onSuccess: () => {
            onClose();
            onDeleted(chat.id);
          },
        })
      }
    >
      What was said in <b className="font-medium text-ink">{chat.title || "it"}</b> is gone for good. Its tasks stay.
    </ConfirmDialog>
  );
}
