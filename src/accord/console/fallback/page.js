// The page that stands in for the console: what is there, read every few seconds. Whatever an agent or a task is called
// goes into the page as text, never as markup.
"use strict";

const EVERY_MS = 5000;
const mount = document.querySelector('meta[name="accord-mount"]')?.content ?? "";
const at = (id) => document.getElementById(id);

class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function ask(path, method = "GET", body = undefined) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await fetch(mount + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const said = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (!answer.ok) {
    throw new Refused(answer.status, said?.detail ?? `The server answered ${answer.status}`);
  }
  return said;
}

function row(...cells) {
  const made = document.createElement("tr");
  for (const cell of cells) {
    const one = document.createElement("td");
    one.textContent = cell ?? "";
    made.append(one);
  }
  return made;
}

function showSession(session) {
  const name = session.isOpen ? "open to this machine" : session.signedIn ? `signed in as ${session.name}` : "not signed in";
  at("who").textContent = `${session.version}, ${name}`;
  at("where").textContent = session.url;
  at("out").hidden = session.isOpen || !session.signedIn;
  at("signin").hidden = session.signedIn;
  at("content").hidden = !session.signedIn;
  const kinds = new Set(session.ways.map((way) => way.kind));
  at("by-key").hidden = !kinds.has("api-key");
  at("by-name").hidden = at("by-password").hidden = !kinds.has("password");
  at("links").replaceChildren(
    ...session.ways
      .filter((way) => way.url)
      .map((way) => {
        const link = document.createElement("a");
        link.href = way.url;
        link.textContent = `Sign in with ${way.label}`;
        return link;
      }),
  );
}

async function show() {
  const session = await ask("/api/session");
  showSession(session);
  if (!session.signedIn) {
    return;
  }
  const [agents, tasks] = await Promise.all([ask("/api/agents"), ask("/api/tasks?limit=20")]);
  at("agents").replaceChildren(
    ...agents.items.map((one) => row(one.name, one.version, one.description, one.health.state)),
  );
  at("tasks").replaceChildren(
    ...tasks.items.map((one) => row(one.title || one.id, one.agent, one.status, new Date(one.updatedAt).toLocaleString())),
  );
  at("none").hidden = tasks.items.length > 0;
}

async function follow() {
  try {
    await show();
  } catch (error) {
    at("who").textContent = error instanceof Refused ? error.message : "The server does not answer; trying again";
  }
  setTimeout(follow, EVERY_MS);
}

at("signin").addEventListener("submit", async (event) => {
  event.preventDefault();
  const given = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value));
  at("wrong").textContent = "";
  try {
    await ask("/api/session", "POST", given);
    event.target.reset();
    await show();
  } catch (error) {
    at("wrong").textContent = error.message;
  }
});

at("out").addEventListener("click", async () => {
  await ask("/api/session", "DELETE");
  await show();
});

follow();
