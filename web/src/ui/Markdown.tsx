import { lazy, Suspense } from "react";
import { chunk } from "@/api/chunks";

// The parser is 50 kB: it is fetched when the first message needs it, and the text is readable before.
const MarkdownBody = lazy(() => chunk(() => import("./MarkdownBody")));

/** Markdown by agents, which is hostile until shown otherwise: no raw HTML, no foreign images. */
export function Markdown({ text }: { text: string }) {
  return (
    <Suspense fallback={<div className="break-words whitespace-pre-wrap">{text}</div>}>
      <MarkdownBody text={text} />
    </Suspense>
  );
}
