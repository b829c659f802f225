import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { taskRow } from "@/testing/rows";
import { Feed, type Source } from "./feed";
import type { FromFeed } from "./protocol";

class Server implements Source {
  readonly listeners = new Map<string, (event: MessageEvent<string>) => void>();
  onerror: ((event: Event) => unknown) | null = null;
  closed = false;
  constructor(readonly url: string) {}
  addEventListener(kind: string, listener: (event: MessageEvent<string>) => void): void {
    this.listeners.set(kind, listener);
  }
  close(): void {
    this.closed = true;
  }
  say(kind: string, body: unknown, id = ""): void {
    this.listeners.get(kind)?.(new MessageEvent(kind, { data: JSON.stringify(body), lastEventId: id }));
  }
}

let servers: Server[] = [];
const current = () => servers.at(-1) as Server;
const newFeed = () =>
  new Feed((url) => {
    servers.push(new Server(url));
    return current();
  });

function newTab() {
  const heard: FromFeed[] = [];
  return { heard, tell: (message: FromFeed) => void heard.push(message) };
}

beforeEach(() => {
  vi.useFakeTimers();
  servers = [];
});
afterEach(() => {
  vi.useRealTimers();
});

test("many tabs share one connection with all their topics", () => {
  const feed = newFeed();
  const [one, two] = [newTab(), newTab()];
  feed.join(one.tell, []);
  feed.join(one.tell, ["task:b"]);
  feed.join(two.tell, ["task:a", "task:b"]);
  expect(servers.filter((server) => !server.closed)).toHaveLength(1);
  expect(current().url).toBe("/api/events?topics=task%3Aa%2Ctask%3Ab");
});

test("every tab is told events, in batches, and since when it is told all", () => {
  const feed = newFeed();
  const [one, two] = [newTab(), newTab()];
  feed.join(one.tell, []);
  current().say("hello", { seq: 7 });
  current().say("task", taskRow(), "8");
  current().say("task", taskRow({ id: "t2" }), "9");
  feed.join(two.tell, []);
  vi.advanceTimersByTime(100);
  expect(one.heard).toContainEqual({ type: "covers", after: 7 });
  expect(two.heard).toContainEqual({ type: "covers", after: 9 });
  const batches = one.heard.filter((message) => message.type === "events");
  expect(batches.map((batch) => batch.events.map((event) => event.id))).toEqual([[8, 9]]);
});

test("after a break it goes on behind the last event, without anything being read anew", () => {
  const feed = newFeed();
  const tab = newTab();
  feed.join(tab.tell, []);
  current().say("hello", { seq: 7 });
  current().say("task", taskRow(), "12");
  current().onerror?.(new Event("error"));
  expect(tab.heard.at(-1)).toEqual({ type: "connection", connection: "reconnecting" });
  vi.advanceTimersByTime(600);
  expect(current().url).toBe("/api/events?after=12");
  current().say("hello", { seq: 20 });
  expect(tab.heard.filter((message) => message.type === "covers")).toHaveLength(1);
  expect(tab.heard.at(-1)).toEqual({ type: "connection", connection: "live" });
});

test("it waits a tenth of the outage before it tries again, and not at all when asked to try", () => {
  const feed = newFeed();
  feed.join(newTab().tell, []);
  const fail = () => current().onerror?.(new Event("error"));
  const triesWithin = (ms: number) => {
    const before = servers.length;
    vi.advanceTimersByTime(ms);
    return servers.length - before;
  };
  fail();
  expect([triesWithin(499), triesWithin(1)]).toEqual([0, 1]);
  vi.advanceTimersByTime(9500);
  fail();
  expect([triesWithin(999), triesWithin(1)]).toEqual([0, 1]);
  vi.advanceTimersByTime(600_000);
  fail();
  expect([triesWithin(9999), triesWithin(1)]).toEqual([0, 1]);
  fail();
  feed.retry();
  expect(servers).toHaveLength(5);
  current().say("hello", { seq: 1 });
  fail();
  expect([triesWithin(499), triesWithin(1)]).toEqual([0, 1]);
});

test("when the last tab leaves, the connection ends", () => {
  const feed = newFeed();
  const tab = newTab();
  feed.join(tab.tell, []);
  feed.leave(tab.tell);
  expect(current().closed).toBe(true);
});
