import type { QueryClient } from "@tanstack/react-query";
import { useEffect, useSyncExternalStore } from "react";
import { apiUrl, MOUNT } from "@/api/client";
import { setClockSkew } from "@/ui/clock";
import { LiveCache } from "./cache";
import { Feed } from "./feed";
import { WORKER_NAME, type Connection, type FromFeed, type ToFeed } from "./protocol";

type Send = (message: ToFeed) => void;

let connection: Connection = "connecting";
let send: Send | null = null;
const listeners = new Set<() => void>();
/** How many components look at each topic. */
const topics = new Map<string, number>();

function setConnection(next: Connection): void {
  connection = next;
  for (const listener of listeners) listener();
}

function shareTopics(): void {
  send?.({ type: "topics", topics: [...topics.keys()] });
}

function viaWorker(tell: (message: FromFeed) => void): Send {
  const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: WORKER_NAME + MOUNT });
  worker.port.onmessage = ({ data }: MessageEvent<FromFeed>) => tell(data);
  // A closed tab cannot be noticed from within the worker, so it says goodbye; one that returns from the history joins again.
  window.addEventListener("pagehide", () => worker.port.postMessage({ type: "bye" } satisfies ToFeed));
  window.addEventListener("pageshow", (event) => event.persisted && shareTopics());
  return (message) => worker.port.postMessage(message);
}

/** Without SharedWorker each tab has its own connection, and gives it back while nobody looks. */
function inTab(tell: (message: FromFeed) => void): Send {
  const feed = new Feed((url) => new EventSource(apiUrl(url)));
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      feed.leave(tell);
      setConnection("paused");
    } else {
      shareTopics();
    }
  });
  return (message) => {
    if (message.type === "topics") feed.join(tell, message.topics);
    else if (message.type === "retry") feed.retry();
    else feed.leave(tell);
  };
}

/** Call once, where the application starts. */
export function startLive(client: QueryClient): void {
  const cache = new LiveCache(client);
  const tell = (message: FromFeed) => {
    if (message.type === "connection") {
      setConnection(message.connection);
      if (message.connection === "live") cache.recovered();
    } else if (message.type === "clock") {
      setClockSkew(new Date(message.now).getTime() - Date.now());
    } else if (message.type === "covers") {
      cache.covers(message.after);
    } else {
      cache.apply(message.events);
    }
  };
  send = typeof SharedWorker === "undefined" ? inTab(tell) : viaWorker(tell);
  shareTopics();
}

/** Connect at once, e.g. after signing in. */
export function retryLive(): void {
  send?.({ type: "retry" });
}

/** While mounted, the feed also tells of every new event in this task's log ("task:ID"). */
export function useTopic(topic: string | null): void {
  useEffect(() => {
    if (!topic) return;
    topics.set(topic, (topics.get(topic) ?? 0) + 1);
    shareTopics();
    return () => {
      const left = (topics.get(topic) ?? 1) - 1;
      if (left > 0) topics.set(topic, left);
      else topics.delete(topic);
      shareTopics();
    };
  }, [topic]);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useConnection(): Connection {
  return useSyncExternalStore(subscribe, () => connection);
}
