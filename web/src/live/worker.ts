import { Feed } from "./feed";
import { WORKER_NAME, type FromFeed, type ToFeed } from "./protocol";

// HTTP/1.1 allows six connections to a host: with one per tab the seventh tab would not load. This worker is shared by
// all tabs and holds the only one.
// The DOM's types know windows only; these are the things of a shared worker's scope that are used.
const scope = self as unknown as { name: string; onconnect: ((event: MessageEvent) => void) | null };

// The name ends with the prefix below which the server is mounted (live.ts).
const mount = scope.name.slice(WORKER_NAME.length);
const feed = new Feed((url) => new EventSource(mount + url));

scope.onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  const tell = (message: FromFeed) => port.postMessage(message);
  port.onmessage = ({ data }: MessageEvent<ToFeed>) => {
    if (data.type === "topics") feed.join(tell, data.topics);
    else if (data.type === "retry") feed.retry();
    else feed.leave(tell);
  };
};
