import { QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { keys } from "@/api/keys";
import type { TaskPage } from "@/api/types";
import { taskPage, taskRow, taskView } from "@/testing/rows";
import { LiveCache } from "./cache";
import type { Pages } from "./patch";

const listed = (items: TaskPage["items"], feed: number): Pages<TaskPage> => ({ pages: [taskPage(items, { feed })], pageParams: [null] });

let client: QueryClient;
let cache: LiveCache;
beforeEach(() => {
  vi.useFakeTimers();
  client = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  cache = new LiveCache(client);
});
afterEach(() => {
  client.clear();
  vi.useRealTimers();
});

test("an event changes the lists that are there", () => {
  client.setQueryData(keys.tasks({}), listed([taskRow()], 100));
  cache.covers(100);
  cache.apply([{ kind: "task", id: 101, body: taskRow({ status: "completed", seq: 2 }) }]);
  expect(client.getQueryData<Pages<TaskPage>>(keys.tasks({}))?.pages[0]?.items[0]?.status).toBe("completed");
});

test("an event that overtakes the list it belongs to is not lost", async () => {
  cache.covers(100);
  let answer!: (data: Pages<TaskPage>) => void;
  const fetched = client.fetchQuery({ queryKey: keys.tasks({}), queryFn: () => new Promise<Pages<TaskPage>>((resolve) => (answer = resolve)) });
  await vi.advanceTimersByTimeAsync(0);
  cache.apply([{ kind: "task", id: 105, body: taskRow({ status: "failed", seq: 9 }) }]);
  answer(listed([taskRow({ seq: 8 })], 104));
  await fetched;
  await vi.advanceTimersByTimeAsync(0);
  expect(client.getQueryData<Pages<TaskPage>>(keys.tasks({}))?.pages[0]?.items[0]?.status).toBe("failed");
});

test("a list from before the connection is read again, once", async () => {
  const read = vi.fn(() => Promise.resolve(listed([], 50)));
  const stop = new QueryObserver(client, { queryKey: keys.tasks({}), queryFn: read }).subscribe(() => undefined);
  await vi.advanceTimersByTimeAsync(0);
  cache.covers(100);
  await vi.advanceTimersByTimeAsync(5000);
  stop();
  // The second answer is as old as the first: it is asked for once more and then believed.
  expect(read.mock.calls.length).toBeGreaterThan(1);
  expect(read.mock.calls.length).toBeLessThan(4);
});

test("an open task is read again once for a burst of events", async () => {
  const read = vi.fn(() => Promise.resolve(taskView({ feed: 500 })));
  const stop = new QueryObserver(client, { queryKey: keys.task("t1"), queryFn: read }).subscribe(() => undefined);
  await vi.advanceTimersByTimeAsync(0);
  cache.covers(100);
  for (let id = 101; id < 150; id += 1) cache.apply([{ kind: "log", id, body: { taskId: "t1", seq: id } }]);
  await vi.advanceTimersByTimeAsync(1000);
  stop();
  expect(read).toHaveBeenCalledTimes(2);
});

test("after a reset everything is read again", async () => {
  const read = vi.fn(() => Promise.resolve(listed([], 500)));
  const stop = new QueryObserver(client, { queryKey: keys.tasks({}), queryFn: read }).subscribe(() => undefined);
  await vi.advanceTimersByTimeAsync(0);
  cache.apply([{ kind: "reset", id: 1, body: {} }]);
  await vi.advanceTimersByTimeAsync(0);
  stop();
  expect(read).toHaveBeenCalledTimes(2);
});

test("a task that changes makes agents be counted again, once in a while", async () => {
  const counted = vi.fn(() => Promise.resolve({ items: [], feed: 100 }));
  const observer = new QueryObserver(client, { queryKey: keys.agents, queryFn: counted });
  const stop = observer.subscribe(() => undefined);
  await vi.advanceTimersByTimeAsync(0);
  cache.covers(100);
  for (let seq = 1; seq <= 50; seq += 1) cache.apply([{ kind: "task", id: 100 + seq, body: taskRow({ seq }) }]);
  await vi.advanceTimersByTimeAsync(2500);
  expect(counted).toHaveBeenCalledTimes(2);
  stop();
});
