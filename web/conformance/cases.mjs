/**
 * Reads one answer of the chat with a real `ai` package and prints what came of it as JSON: the chunks as the transport
 * accepted them, and the message that they fold into. Each major version has a folder of its own that calls this.
 *
 * node vN/run.mjs send URL CHAT BODY MESSAGES   (BODY: what is sent beside the messages)
 * node vN/run.mjs resume URL CHAT
 */
export async function run(ai) {
  const [how, url, chatId, body, messages] = process.argv.slice(2);
  const transport = new ai.DefaultChatTransport({ api: `${url}/api/chat`, body: body ? JSON.parse(body) : {} });
  const found = { chunks: [], message: null, error: null, idle: false };
  try {
    const stream = await begin(transport, how, chatId, messages);
    if (stream === null) found.idle = true;
    else await read(ai, stream, found);
  } catch (error) {
    found.error = String(error?.message ?? error);
  }
  process.stdout.write(JSON.stringify(found));
}

function begin(transport, how, chatId, messages) {
  if (how === "resume") return transport.reconnectToStream({ chatId });
  return transport.sendMessages({ trigger: "submit-message", chatId, messageId: undefined, messages: JSON.parse(messages), abortSignal: undefined });
}

async function read(ai, stream, found) {
  const [seen, folded] = stream.tee();
  const seeing = (async () => {
    for await (const chunk of seen) {
      if (found.chunks.length === 0) process.stderr.write("begun\n"); // for whoever waits to stop it
      found.chunks.push(chunk);
    }
  })();
  const onError = (error) => {
    found.error = String(error?.message ?? error);
  };
  for await (const message of ai.readUIMessageStream({ stream: folded, onError, terminateOnError: false })) found.message = message;
  await seeing;
}
