import { useState } from "react";
import { Button, CodeBlock } from "@/ui";

/** HTML by an agent, in a frame that may do nothing: no scripts, no forms, no access to this page. */
export function HtmlPreview({ html, src }: { html?: string; src?: string }) {
  const [source, setSource] = useState(false);
  return (
    <div className="flex flex-col gap-2">
      {source && html !== undefined ? (
        <CodeBlock code={html} label="text/html" />
      ) : (
        <iframe title="Preview of an HTML document" sandbox="" referrerPolicy="no-referrer" {...(src ? { src } : { srcDoc: html })} className="h-80 w-full rounded border border-line bg-white" />
      )}
      {html !== undefined && (
        <Button kind="ghost" size="small" className="self-start" onClick={() => setSource(!source)}>
          {source ? "Show the page" : "Show the source"}
        </Button>
      )}
    </div>
  );
}
