import { describe, expect, it } from "vitest";
import { after, EventReader, gist, NOTHING, taskIn, type Told } from "./happened";
import { earlier, remember } from "./earlier";

const frame = (n: number) => ({ n, at: null, gapMs: n, id: String(n), event: null, data: `{"n":${n},"text":"a\\n\\nb"}` });
const TEXT = [
  `event: head\ndata: ${JSON.stringify({ status: 200, headers: [["a", "b"]], elapsedMs: 3 })}\n\n`,
  `event: frame\ndata: ${JSON.stringify(frame(1))}\n\n`,
  ": keep-alive\n\n",
  `event: frame\ndata: ${JSON.stringify(frame(2))}\n\n`,
  `event: end\ndata: ${JSON.stringify({ bytes: 9, frames: 2, elapsedMs: 5, truncated: null, problem: null })}\n\n`,
].join("");

function read(pieces: string[]): Told[] {
  const reader = new EventReader();
  return pieces.flatMap((piece) => reader.feed(piece));
}

describe("events", () => {
  it("are the same however the stream is cut", () => {
    const whole = read([TEXT]);
    expect(whole.map((told) => told.kind)).toEqual(["head", "frame", "frame", "end"]);
    for (let size = 1; size < 40; size += 1) {
      const pieces = TEXT.match(new RegExp(`[\\s\\S]{1,${size}}`, "g")) ?? [];
      expect(read(pieces)).toEqual(whole);
    }
  });
  it("become an answer in their order", () => {
    const answer = read([TEXT]).reduce(after, NOTHING);
    expect(answer.frames.map((one) => [one.n, one.gapMs])).toEqual([
      [1, 1],
      [2, 2],
    ]);
    expect([answer.head?.status, answer.end?.frames, answer.body]).toEqual([200, 2, null]);
  });
});

describe("what is in an answer", () => {
  it("is told in a few words, in any dialect", () => {
    expect(gist('{"result":{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_WORKING"}}}}')).toBe("statusUpdate · TASK_STATE_WORKING");
    expect(gist('{"result":{"kind":"artifact-update","artifact":{"parts":[{"text":"Hi"}]}}}')).toBe('artifact-update · "Hi"');
    expect(gist('{"error":{"code":1,"message":"no"}}')).toBe("error: no");
    expect(gist("plain")).toBe("plain");
  });
  it("names its task", () => {
    const about = ['{"result":{"task":{"id":"t","status":{}}}}', '{"result":{"id":"t","status":{}}}', '{"result":{"statusUpdate":{"taskId":"t"}}}', '{"id":"t","status":{"state":"x"}}', '{"task_id":"t"}', '{"jsonrpc":"2.0","id":1,"result":{"id":"t"}}'];
    expect(about.map(taskIn)).toEqual(["t", "t", "t", "t", "t", "t"]);
    expect([taskIn('{"id":1,"error":{}}'), taskIn("x")]).toEqual([null, null]);
  });
});

describe("earlier requests", () => {
  const one = { method: "POST", path: "/", headers: "Authorization: Bearer x\nA: b", body: "{}", dialect: "v1", binding: "JSONRPC", operation: "SendMessage" };
  it("are kept in order, each once, without credentials", () => {
    localStorage.clear();
    remember("a", one);
    remember("a", { ...one, body: "[]" });
    remember("a", one);
    expect(earlier("a").map((kept) => kept.body)).toEqual(["[]", "{}"]);
    expect(JSON.stringify(localStorage)).not.toContain("Bearer x");
    expect(earlier("b")).toEqual([]);
  });
});
