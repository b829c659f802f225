/** The same thing without the console, to paste into a terminal or a program. */

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export function agentUrl(server: string, slug: string): string {
  return `${server.replace(/\/$/, "")}/agents/${encodeURIComponent(slug)}`;
}

export function curlForTask(server: string, slug: string, id: string): string {
  return `curl -s ${quote(`${agentUrl(server, slug)}/tasks/${encodeURIComponent(id)}`)} -H 'A2A-Version: 1.0'`;
}

export function pythonForTask(server: string, slug: string, id: string): string {
  const text = JSON.stringify;
  return [
    "from accord import BlockingClient",
    "",
    `with BlockingClient(${text(agentUrl(server, slug))}) as client:`,
    `    print(client.task(${text(id)}).refresh())`,
    "",
  ].join("\n");
}
