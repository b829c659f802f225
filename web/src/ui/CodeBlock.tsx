import { CopyButton } from "./CopyButton";
import { cx } from "./cx";

interface CodeBlockProps {
  code: string;
  /** Shown above the code, normally the language or the file's name. */
  label?: string;
  wrap?: boolean;
  /** The line that matters right now, from 1. */
  highlight?: readonly number[];
  className?: string;
}

/** Code as it is, with line highlighting and a copy button; scrolls by itself. */
export function CodeBlock({ code, label, wrap, highlight, className }: CodeBlockProps) {
  const marked = new Set(highlight);
  return (
    <div className={cx("group relative overflow-hidden rounded-md border border-line bg-sunken", className)}>
      {label && <div className="border-b border-line px-3 py-1 text-xs text-faint">{label}</div>}
      <CopyButton text={code} label="Copy the code" className="absolute top-1 right-1 bg-sunken opacity-0 group-hover:opacity-100 focus-visible:opacity-100" />
      {/* Focusable, so that the keyboard can scroll it. */}
      <pre tabIndex={0} aria-label={label ?? "Code"} className={cx("max-h-[480px] overflow-auto py-2.5 text-mono", wrap && "break-words whitespace-pre-wrap")}>
        {code.split("\n").map((line, index) => (
          // Lines have no identity but their place.
          <div key={index} className={cx("px-3", marked.has(index + 1) && "bg-accent-tint shadow-[inset_2px_0_0_var(--accent)]")}>
            {line || " "}
          </div>
        ))}
      </pre>
    </div>
  );
}
