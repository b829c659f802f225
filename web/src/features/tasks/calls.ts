/** The same thing without the console, to paste into a terminal or a program. */

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The key is never copied: whoever pastes the call has it in a variable. */
const KEY = "ACCORD_API_KEY";

export function agentUrl(server: string, slug: string): string {
  return `${server.replace(/\/$/, "")}/agents/${encodeURIComponent(slug)}`;
}

/** A request as one line; where the server asks who calls, with a key. */
export function curlFor(url: string, isOpen: boolean, headers: readonly string[] = []): string {
  const key = isOpen ? "" : ` -H "X-API-Key: $${KEY}"`;
  return `curl -sS ${quote(url)}${headers.map((header) => ` -H ${quote(header)}`).join("")}${key}`;
}

/** A program that has a client of the agent, and does this with it. */
export function pythonFor(url: string, isOpen: boolean, does: string): string {
  const text = JSON.stringify;
  const key = isOpen ? "" : `, headers={"X-API-Key": os.environ[${text(KEY)}]}`;
  return [...(isOpen ? [] : ["import os", ""]), "from accord import BlockingClient", "", `with BlockingClient(${text(url)}${key}) as client:`, `    ${does}`, ""].join("\n");
}

export function curlForTask(server: string, slug: string, id: string, isOpen: boolean): string {
  return curlFor(`${agentUrl(server, slug)}/tasks/${encodeURIComponent(id)}`, isOpen, ["A2A-Version: 1.0"]);
}

export function pythonForTask(server: string, slug: string, id: string, isOpen: boolean): string {
  return pythonFor(agentUrl(server, slug), isOpen, `print(client.task(${JSON.stringify(id)}).refresh())`);
}
