import type { InfiniteData } from "@tanstack/react-query";
import type { Query } from "@/api/client";
import type { ChatRow, Inbox, TaskPage, TaskRow, TaskView } from "@/api/types";

/** How rows of the feed change what is already there. Pure: the same object comes back when nothing changed. */

export type Pages<Page> = InfiniteData<Page, string | null>;

const listed = (value: Query[string]): readonly string[] => (Array.isArray(value) ? value : value === undefined || value === null || value === "" ? [] : [String(value)]);

/** Whether a task belongs into the list that was asked for with these filters, as the server decides it. */
export function matches(row: TaskRow, filters: Query): boolean {
  const states = listed(filters.state);
  if (states.length > 0 && !states.includes(row.status)) return false;
  if (filters.agent && filters.agent !== row.slug) return false;
  if (filters.contextId && filters.contextId !== row.contextId) return false;
  if (filters.parent && filters.parent !== row.parentId) return false;
  if (filters.top && row.parentId !== null) return false;
  if (filters.since && Date.parse(row.createdAt) < Date.parse(String(filters.since))) return false;
  const text = String(filters.q ?? "").toLowerCase();
  return text === "" || row.title.toLowerCase().includes(text) || row.id.toLowerCase().includes(text);
}

const newestFirst = (left: TaskRow, right: TaskRow) => Date.parse(right.createdAt) - Date.parse(left.createdAt);

/** Rows that are shown stay where they are; new ones go where their age puts them; ones that no longer match leave. */
export function patchTaskPages(data: Pages<TaskPage>, rows: ReadonlyMap<string, TaskRow>, filters: Query): Pages<TaskPage> {
  const present = new Set<string>();
  let removed = 0;
  let changed = false;
  const pages = data.pages.map((page) => {
    const items = page.items.flatMap((item) => {
      present.add(item.id);
      const row = rows.get(item.id);
      if (!row || row.seq < item.seq) return [item];
      changed = true;
      if (matches(row, filters)) return [row];
      removed += 1;
      return [];
    });
    return { ...page, items };
  });
  const oldest = data.pages.at(-1)?.items.at(-1);
  const isWhole = !data.pages.at(-1)?.next;
  // Something older than all that is loaded belongs to a page that is not there yet.
  const fits = (row: TaskRow) => isWhole || !oldest || Date.parse(row.createdAt) >= Date.parse(oldest.createdAt);
  const added = [...rows.values()].filter((row) => !present.has(row.id) && matches(row, filters) && fits(row));
  const first = pages[0];
  if (!first || (!changed && added.length === 0)) return data;
  if (added.length > 0) pages[0] = { ...first, items: [...added, ...first.items].toSorted(newestFirst) };
  const shift = added.length - removed;
  return { ...data, pages: pages.map((page) => ({ ...page, total: page.total + shift })) };
}

/** The header of an open task follows at once; what a row does not say is fetched. */
export function patchTaskView(view: TaskView, rows: ReadonlyMap<string, TaskRow>): TaskView {
  const own = rows.get(view.id);
  const children = patchChildren(view, rows);
  if ((!own || own.seq < view.seq) && children === view.children) return view;
  return { ...view, ...(own && own.seq >= view.seq ? own : {}), children };
}

function patchChildren(view: TaskView, rows: ReadonlyMap<string, TaskRow>): TaskRow[] {
  const known = new Set(view.children.map((child) => child.id));
  const added = [...rows.values()].filter((row) => row.parentId === view.id && !known.has(row.id));
  const changed = view.children.some((child) => (rows.get(child.id)?.seq ?? -1) > child.seq);
  if (!changed && added.length === 0) return view.children;
  return [...view.children.map((child) => newer(child, rows.get(child.id))), ...added];
}

function newer(row: TaskRow, other: TaskRow | undefined): TaskRow {
  return other && other.seq >= row.seq ? other : row;
}

/** A question that the task no longer asks is gone for everybody at once; what it asks now has to be fetched. */
export function patchInbox(inbox: Inbox, rows: ReadonlyMap<string, TaskRow>): Inbox {
  const items = inbox.items.filter((item) => {
    const row = rows.get(item.task.id);
    if (!row || row.seq <= item.task.seq) return true;
    return row.waiting !== null && (item.message === null || !row.question || row.question.id === item.message);
  });
  return items.length === inbox.items.length ? inbox : { ...inbox, items };
}

export function patchChatPages<Page extends { items: ChatRow[] }>(data: Pages<Page>, rows: ReadonlyMap<string, ChatRow>): Pages<Page> {
  let changed = false;
  const pages = data.pages.map((page) => ({
    ...page,
    items: page.items.map((item) => {
      const row = rows.get(item.id);
      if (!row) return item;
      changed = true;
      return row;
    }),
  }));
  return changed ? { ...data, pages } : data;
}
