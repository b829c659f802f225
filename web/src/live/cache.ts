import { hashKey, type QueryClient, type QueryKey } from "@tanstack/react-query";
import type { Query } from "@/api/client";
import { keys } from "@/api/keys";
import type { ChatPage, ChatRow, Inbox, TaskPage, TaskRow, TaskView } from "@/api/types";
import { patchChatPages, patchInbox, patchTaskPages, patchTaskView, type Pages } from "./patch";
import type { FeedEvent } from "./protocol";

/** Details that many events concern are fetched again at most this often. */
const REFETCH_MS = 200;
/** How busy agents are is counted over all their tasks, and need not be told with each of them. */
const BUSY_MS = 2000;
/** How many events are remembered for lists that are still on their way here. */
const REMEMBERED = 2000;

/** The number of the feed up to which an answer certainly tells everything; absent from answers that are not live. */
function feedOf(data: unknown): number | null {
  const body = isPages(data) ? data.pages[0] : data;
  const feed = (body as { feed?: unknown } | null | undefined)?.feed;
  return typeof feed === "number" ? feed : null;
}

function isPages(data: unknown): data is Pages<unknown> {
  return typeof data === "object" && data !== null && "pages" in data && "pageParams" in data;
}

function keepNewer(tasks: Map<string, TaskRow>, row: TaskRow): void {
  if ((tasks.get(row.id)?.seq ?? -1) <= row.seq) tasks.set(row.id, row);
}

/** Writes what the feed tells into the cache of the pages, so that nothing ever polls. */
export class LiveCache {
  /** Nothing is known to be missing until the feed has said where it begins. */
  private after = Number.NEGATIVE_INFINITY;
  private readonly askedAgain = new Set<string>();
  private recent: FeedEvent[] = [];
  private readonly due = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(private readonly client: QueryClient) {
    client.getQueryCache().subscribe((event) => {
      // `manual` is what this class writes itself.
      if (event.type === "updated" && event.action.type === "success" && !event.action.manual) this.arrived(event.query.queryKey, event.query.state.data);
    });
  }

  /** From this number on every event comes here. What was read before it is read again. */
  covers(after: number): void {
    this.after = after;
    this.askedAgain.clear();
    const isOlder = (data: unknown) => (feedOf(data) ?? after) < after;
    void this.client.invalidateQueries({ predicate: (query) => isOlder(query.state.data) });
  }

  /** The server answers again: what failed meanwhile is asked once more. */
  recovered(): void {
    void this.client.invalidateQueries({ predicate: (query) => query.state.status === "error" });
  }

  apply(events: readonly FeedEvent[]): void {
    if (events.some((event) => event.kind === "reset")) {
      this.recent = [];
      void this.client.invalidateQueries();
      return;
    }
    this.recent = [...this.recent, ...events].slice(-REMEMBERED);
    this.write(events);
  }

  /** An answer that was on its way while events came: they are told once more, to it alone. */
  private arrived(key: QueryKey, data: unknown): void {
    const feed = feedOf(data);
    if (feed === null) return;
    const name = hashKey(key);
    if (feed < this.after) {
      // Once: an answer that is older than the connection even then is as new as the server has it.
      if (!this.askedAgain.has(name)) this.refetchSoon(key);
      this.askedAgain.add(name);
      return;
    }
    const missed = new Map<string, TaskRow>();
    for (const event of this.recent) if (event.kind === "task" && event.id > feed) keepNewer(missed, event.body);
    // Not within the notification, which would be told of its own writing.
    if (missed.size > 0) queueMicrotask(() => this.catchUp(key, missed));
  }

  private catchUp(key: QueryKey, rows: ReadonlyMap<string, TaskRow>): void {
    if (key[0] === "tasks") this.writeList(key, rows);
    else if (key[0] === "inbox") this.writeInbox(rows);
    else if (key[0] === "task" && key.length === 2) this.writeView(key, rows);
    else if ([...rows.values()].some((row) => row.id === key[1])) this.refetchSoon(key);
  }

  private write(events: readonly FeedEvent[]): void {
    const tasks = new Map<string, TaskRow>();
    const chats = new Map<string, ChatRow>();
    for (const event of events) {
      if (event.kind === "task") keepNewer(tasks, event.body);
      else if (event.kind === "chat") chats.set(event.body.id, event.body);
      else if (event.kind === "log") this.taskChanged(event.body.taskId);
      else if (event.kind === "agent") this.refetchSoon(keys.agents, keys.agent(event.body.slug));
      else if (event.kind === "delivery") this.refetchSoon(["deliveries"], ["delivery"], keys.taskTimeline(event.body.taskId));
    }
    if (tasks.size > 0) this.writeTasks(tasks);
    if (chats.size > 0) this.writeChats(chats);
  }

  private writeTasks(rows: ReadonlyMap<string, TaskRow>): void {
    for (const query of this.client.getQueryCache().findAll({ queryKey: ["tasks"] })) this.writeList(query.queryKey, rows);
    this.writeInbox(rows);
    this.refetchWithin(BUSY_MS, keys.agents);
    for (const row of rows.values()) {
      this.refetchWithin(BUSY_MS, keys.agent(row.slug));
      if (row.isRun) this.refetchSoon(["runs"]);
      for (const id of row.parentId ? [row.id, row.parentId] : [row.id]) {
        this.writeView(keys.task(id), rows);
        this.taskChanged(id);
      }
    }
  }

  private writeList(key: QueryKey, rows: ReadonlyMap<string, TaskRow>): void {
    const filters = (key[1] ?? {}) as Query;
    this.client.setQueryData<Pages<TaskPage>>(key, (data) => data && patchTaskPages(data, rows, filters));
  }

  private writeInbox(rows: ReadonlyMap<string, TaskRow>): void {
    this.client.setQueryData<Inbox>(keys.inbox, (inbox) => inbox && patchInbox(inbox, rows));
    // What it asks is not in the row.
    if ([...rows.values()].some((row) => row.waiting !== null)) this.refetchSoon(keys.inbox);
  }

  private writeView(key: QueryKey, rows: ReadonlyMap<string, TaskRow>): void {
    this.client.setQueryData<TaskView>(key, (view) => view && patchTaskView(view, rows));
  }

  /** Everything that shows this task in detail: the canvas, its log and timeline, and the run it may be. */
  private taskChanged(id: string): void {
    this.refetchSoon(keys.task(id), keys.run(id));
  }

  private writeChats(rows: ReadonlyMap<string, ChatRow>): void {
    for (const id of rows.keys()) this.refetchSoon(keys.chat(id));
    for (const query of this.client.getQueryCache().findAll({ queryKey: ["chats"] })) {
      const data = this.client.getQueryData<Pages<ChatPage>>(query.queryKey);
      if (!data) continue;
      const known = new Set(data.pages.flatMap((page) => page.items.map((item) => item.id)));
      if ([...rows.keys()].some((id) => !known.has(id))) this.refetchSoon(query.queryKey);
      this.client.setQueryData<Pages<ChatPage>>(query.queryKey, patchChatPages(data, rows));
    }
  }

  /** Once per interval and key, and never while an answer is on its way: that one may already be too old. */
  private refetchSoon(...queryKeys: readonly QueryKey[]): void {
    this.refetchWithin(REFETCH_MS, ...queryKeys);
  }

  private refetchWithin(ms: number, ...queryKeys: readonly QueryKey[]): void {
    for (const queryKey of queryKeys) {
      const name = hashKey(queryKey);
      if (this.due.has(name) || this.client.getQueryCache().findAll({ queryKey }).length === 0) continue;
      const run = () => {
        if (this.client.isFetching({ queryKey }) > 0) {
          this.due.set(name, setTimeout(run, ms));
          return;
        }
        this.due.delete(name);
        void this.client.invalidateQueries({ queryKey });
      };
      this.due.set(name, setTimeout(run, ms));
    }
  }
}
