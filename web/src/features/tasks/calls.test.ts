import { expect, test } from "vitest";
import { curlForTask, pythonForTask } from "./calls";

test("an open server is called without a key", () => {
  expect(curlForTask("http://localhost:8000/", "it's", "t1", true)).toBe("curl -sS 'http://localhost:8000/agents/it'\\''s/tasks/t1' -H 'A2A-Version: 1.0'");
  expect(pythonForTask("http://localhost:8000", "echo", "t1", true)).toBe(
    'from accord import BlockingClient\n\nwith BlockingClient("http://localhost:8000/agents/echo") as client:\n    print(client.task("t1").refresh())\n',
  );
});

test("elsewhere the key comes from a variable", () => {
  expect(curlForTask("https://a.example", "echo", "t1", false)).toContain('-H "X-API-Key: $ACCORD_API_KEY"');
  expect(pythonForTask("https://a.example", "echo", "t1", false)).toContain('headers={"X-API-Key": os.environ["ACCORD_API_KEY"]}');
});
