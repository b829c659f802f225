import { FEED_KINDS, type Connection, type FeedEvent, type FeedKind, type FromFeed } from "./protocol";

/** The part of EventSource that is used, so that tests can play the server. */
export interface Source {
  addEventListener: (kind: string, listener: (event: MessageEvent<string>) => void) => void;
  close: () => void;
  onerror: ((event: Event) => unknown) | null;
}

const BATCH_MS = 40;
/** The wait between two attempts is a tenth of the outage, within these: a server that is back is found soon. */
const SHORTEST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

/**
 * One connection to the feed for any number of tabs: their topics united, reconnecting after the last event seen.
 * It runs in a SharedWorker, or in the tab itself where there is none.
 */
export class Feed {
  private source: Source | null = null;
  private readonly members = new Map<(message: FromFeed) => void, readonly string[]>();
  private topics = "";
  private last: number | null = null;
  private connection: Connection = "connecting";
  private batch: FeedEvent[] = [];
  private batchTimer: ReturnType<typeof setTimeout> | undefined;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  /** When the connection was lost; null while it is live. */
  private lostAt: number | null = null;

  constructor(private readonly open: (url: string) => Source) {}

  /** A tab is there; it is told the state at once. */
  join(tell: (message: FromFeed) => void, topics: readonly string[]): void {
    const isNew = !this.members.has(tell);
    this.members.set(tell, topics);
    if (isNew) {
      tell({ type: "connection", connection: this.connection });
      if (this.last !== null) tell({ type: "covers", after: this.last });
    }
    const united = [...new Set([...this.members.values()].flat())].toSorted().join(",");
    if (united === this.topics && this.source) return;
    this.topics = united;
    this.connect();
  }

  leave(tell: (message: FromFeed) => void): void {
    this.members.delete(tell);
    if (this.members.size > 0) return;
    this.disconnect();
    // Whoever comes next reads its lists anew: nothing is owed to anybody.
    this.last = null;
    this.say("paused");
  }

  /** Try now rather than when the wait is over, e.g. after signing in. */
  retry(): void {
    if (this.connection !== "live" && this.members.size > 0) this.connect();
  }

  private connect(): void {
    this.disconnect();
    const query = new URLSearchParams();
    if (this.topics) query.set("topics", this.topics);
    if (this.last !== null) query.set("after", String(this.last));
    const source = this.open(`/api/events${query.size ? `?${query}` : ""}`);
    this.source = source;
    source.addEventListener("hello", (event) => this.greeted(event));
    for (const kind of FEED_KINDS) source.addEventListener(kind, (event) => this.heard(kind, event));
    source.onerror = () => this.lost();
  }

  private disconnect(): void {
    clearTimeout(this.retryTimer);
    if (!this.source) return;
    this.source.onerror = null;
    this.source.close();
    this.source = null;
  }

  private greeted(event: MessageEvent<string>): void {
    const hello = JSON.parse(event.data) as { seq: number; now?: string };
    this.lostAt = null;
    if (hello.now) this.tell({ type: "clock", now: hello.now });
    // With `after` the server tells what was missed, and nobody need know; without, events are told from here on.
    if (this.last === null) {
      this.last = hello.seq;
      this.tell({ type: "covers", after: hello.seq });
    }
    this.say("live");
  }

  private heard(kind: FeedKind, event: MessageEvent<string>): void {
    const id = Number(event.lastEventId) || 0;
    this.last = Math.max(this.last ?? 0, id);
    this.batch.push({ kind, id, body: JSON.parse(event.data) } as FeedEvent);
    this.batchTimer ??= setTimeout(() => this.flush(), BATCH_MS);
  }

  /** A thousand events a second become twenty-five messages. */
  private flush(): void {
    this.batchTimer = undefined;
    const events = this.batch;
    this.batch = [];
    this.tell({ type: "events", events });
  }

  /** EventSource would reconnect by itself, but with the address of long ago and not after every kind of error. */
  private lost(): void {
    this.disconnect();
    this.say("reconnecting");
    this.lostAt ??= Date.now();
    const wait = Math.min(Math.max((Date.now() - this.lostAt) / 10, SHORTEST_WAIT_MS), LONGEST_WAIT_MS);
    this.retryTimer = setTimeout(() => this.connect(), wait);
  }

  private say(connection: Connection): void {
    if (connection === this.connection) return;
    this.connection = connection;
    this.tell({ type: "connection", connection });
  }

  private tell(message: FromFeed): void {
    for (const tell of this.members.keys()) tell(message);
  }
}
