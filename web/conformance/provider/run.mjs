/**
 * Calls an agent through `a2a-ai-provider`, as a language model of the AI SDK, and prints what it said as JSON.
 *
 * node provider/run.mjs generate|stream URL PROMPT
 */
import { a2a } from "a2a-ai-provider";
import { generateText, streamText } from "ai";

// The provider writes a diary to the console; what is printed here is for a program.
console.log = console.info = console.debug = () => {};

const [how, url, prompt] = process.argv.slice(2);
const model = a2a(url);
const found = { text: "", pieces: 0 };
if (how === "generate") {
  found.text = (await generateText({ model, prompt })).text;
} else {
  for await (const piece of streamText({ model, prompt }).textStream) {
    found.text += piece;
    found.pieces += 1;
  }
}
process.stdout.write(JSON.stringify(found));
