import { execFileSync } from "node:child_process";
import { describe, expect, it } from "vitest";
import { curl, HIDDEN, jsonProblem, python, pythonLiteral, readHeaders, urlOf, withNewMessageId, writeHeaders, type Outgoing } from "./request";

const NASTY = `it's "quoted" \\ back
and $(touch x) \`y\` ünï \u2028`;

const sent: Outgoing = {
  url: "http://localhost:8000/agents/a/",
  method: "POST",
  headers: { "Content-Type": "application/json", Authorization: "Bearer secret" },
  body: JSON.stringify({ text: NASTY, yes: true, no: false, none: null, list: [1, 2.5, {}], empty: [] }, null, 2),
  streams: true,
};

describe("headers", () => {
  it("are read line by line and written back", () => {
    const { headers, problem } = readHeaders("A: b\n\n C-D :  e: f ");
    expect({ headers, problem }).toEqual({ headers: { A: "b", "C-D": "e: f" }, problem: null });
    expect(writeHeaders(headers)).toBe("A: b\nC-D: e: f");
  });
  it("that are none are named", () => {
    expect(readHeaders("A: b\nnonsense").problem).toContain("nonsense");
    expect(readHeaders("a b: c").problem).toContain("a b: c");
  });
});

describe("curl", () => {
  it("gives a shell exactly the same request, without credentials", () => {
    const command = curl(sent).replace(/^curl/, "printf '%s\\0'");
    const given = execFileSync("sh", ["-c", command], { encoding: "utf8" }).split("\0");
    expect(given.slice(0, 4)).toEqual(["-N", "-X", "POST", sent.url]);
    expect(given[given.indexOf("--data-raw") + 1]).toBe(sent.body);
    expect(given).toContain(`Authorization: ${HIDDEN}`);
    expect(command).not.toContain("secret");
  });
  it("has no body where there is none", () => {
    expect(curl({ ...sent, body: "", method: "GET", streams: false })).not.toContain("data");
  });
});

describe("Python", () => {
  it("has the literals of Python", () => {
    expect(pythonLiteral({ a: [true, null, "x"] })).toBe('{\n    "a": [\n        True,\n        None,\n        "x",\n    ],\n}');
  });
  it("is a program whose body is the same JSON", () => {
    const program = python(sent).split("request = ")[0] + "\nprint(json.dumps(body))";
    const given: unknown = JSON.parse(execFileSync("python3", ["-c", program], { encoding: "utf8" }));
    expect(given).toEqual(JSON.parse(sent.body));
    expect(program).not.toContain("secret");
  });
  it("compiles without a body, and with one that is no JSON", () => {
    for (const body of ["", "{oops'"]) {
      const program = python({ ...sent, body });
      execFileSync("python3", ["-c", `compile(${JSON.stringify(program)}, "x", "exec")`]);
    }
  });
});

it("says what is wrong with a body, and nothing about an empty one", () => {
  expect(jsonProblem("{")).toBeTruthy();
  expect(jsonProblem(" ")).toBeNull();
});

it("gives messages new ids in every dialect that has some", () => {
  expect(withNewMessageId('{"messageId": "a", "message_id":"b", "id": "c"}', () => "n")).toBe('{"messageId": "n", "message_id":"n", "id": "c"}');
});

it("joins base and path with one slash", () => {
  expect([urlOf("http://a/b/", "/c"), urlOf("http://a", "/")]).toEqual(["http://a/b/c", "http://a/"]);
});
