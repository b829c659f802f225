import { useEffect, useRef, type RefObject } from "react";
import type { StepView } from "@/api/types";
import { CopyButton, cx } from "@/ui";

interface SourceProps {
  code: string;
  step: Pick<StepView, "name" | "line" | "lastLine"> | undefined;
  /** The steps by the line that they begin at: a click on a line goes to its step. */
  onLine: (line: number) => void;
}

/** Brings the first marked line into the upper third of its frame. */
function useInView(scroller: RefObject<HTMLElement | null>, first: number | null): void {
  useEffect(() => {
    const frame = scroller.current;
    const line = first === null ? null : frame?.querySelector<HTMLElement>(`[data-line="${first}"]`);
    if (frame && line) frame.scrollTo({ top: Math.max(0, line.offsetTop - frame.clientHeight / 3) });
  }, [scroller, first]);
}

/** The document as it was when the run began, with the lines of the selected step marked and in view. */
export function Source({ code, step, onLine }: SourceProps) {
  const scroller = useRef<HTMLPreElement>(null);
  const first = step?.line ?? null;
  useInView(scroller, first);
  const lines = code.replace(/\n$/, "").split("\n");
  const isMarked = (number: number) => first !== null && number >= first && number <= (step?.lastLine ?? first);
  return (
    <section aria-label="Document" className="group relative flex h-full min-h-0 flex-col bg-sunken">
      <CopyButton text={code} label="Copy the document" className="absolute top-1.5 right-2 z-10 bg-sunken" />
      <pre ref={scroller} tabIndex={0} aria-label="The document when the run began" className="relative min-h-0 flex-1 overflow-auto py-2 text-mono">
        {lines.map((line, index) => {
          const number = index + 1;
          const marked = isMarked(number);
          return (
            // Lines have no identity but their place. With the keyboard, steps are chosen with j and k.
            <div
              role="presentation"
              key={index}
              data-line={number}
              data-marked={marked || undefined}
              onClick={() => onLine(number)}
              className={cx("flex w-max min-w-full cursor-pointer pr-8", marked ? "bg-accent-tint shadow-[inset_2px_0_0_var(--accent)]" : "hover:bg-hover")}
            >
              <span aria-hidden className="w-10 shrink-0 pr-3 text-right text-faint select-none">
                {number}
              </span>
              <Line text={line} />
            </div>
          );
        })}
      </pre>
    </section>
  );
}

const COMMENT = /(^|\s)#.*$/;
const KEY = /^(\s*(?:- )?)([\w.-]+)(:)(.*)$/;

/** Just enough colour to find one's way: keys, and comments that step back. */
function Line({ text }: { text: string }) {
  const comment = COMMENT.exec(text)?.[0] ?? "";
  const rest = comment ? text.slice(0, text.length - comment.length) : text;
  const key = KEY.exec(rest);
  return (
    <span className="whitespace-pre">
      {key ? (
        <>
          {key[1]}
          <span className="text-accent-strong">{key[2]}</span>
          {key[3]}
          {key[4]}
        </>
      ) : (
        rest || (comment ? "" : " ")
      )}
      {comment && <span className="text-faint">{comment}</span>}
    </span>
  );
}
