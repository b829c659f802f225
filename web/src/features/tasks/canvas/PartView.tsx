import { JsonView, Markdown, CodeBlock } from "@/ui";
import type { Part } from "../a2a";
import { FilePart } from "./FilePart";
import { HtmlPreview } from "./HtmlPreview";
import { previewOf } from "./media";

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Text by its type. Agents mostly write Markdown without saying so, and plain text reads the same. */
export function TextView({ text, mediaType }: { text: string; mediaType?: string }) {
  const preview = previewOf(mediaType ?? "text/markdown");
  if (preview === "json") {
    const value = parsed(text);
    return value === undefined ? <CodeBlock code={text} /> : <JsonView value={value} />;
  }
  if (preview === "html") return <HtmlPreview html={text} />;
  if (preview === "code") return <CodeBlock code={text} label={mediaType} />;
  return <Markdown text={text} />;
}

/** One part of a message or artifact, shown as what it is. */
export function PartView({ part }: { part: Part }) {
  if (part.text !== undefined) return <TextView text={part.text} mediaType={part.mediaType} />;
  if (part.url !== undefined) return <FilePart url={part.url} filename={part.filename} mediaType={part.mediaType} />;
  return <JsonView value={part.data ?? null} />;
}
