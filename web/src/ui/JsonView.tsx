import { ChevronRight } from "lucide-react";
import { useState } from "react";
import { CopyButton } from "./CopyButton";
import { cx } from "./cx";

const isBranch = (value: unknown): value is object => typeof value === "object" && value !== null;

/** Long lists open a slice at a time: a tree of ten thousand nodes would freeze the tab. */
const SLICE = 100;

function Leaf({ value }: { value: unknown }) {
  if (typeof value === "string") return <span className="break-words whitespace-pre-wrap text-green">{JSON.stringify(value)}</span>;
  if (typeof value === "number") return <span className="text-blue">{String(value)}</span>;
  return <span className="text-violet">{String(value)}</span>;
}

function Node({ name, value, depth, openTo }: { name?: string; value: unknown; depth: number; openTo: number }) {
  const [open, setOpen] = useState(depth < openTo);
  const [limit, setLimit] = useState(SLICE);
  const label = name !== undefined && <span className="text-soft">{name}: </span>;
  if (!isBranch(value)) {
    return (
      <div className="py-px pl-4">
        {label}
        <Leaf value={value} />
      </div>
    );
  }
  const entries = Object.entries(value);
  const [left, right] = Array.isArray(value) ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) {
    return (
      <div className="py-px pl-4">
        {label}
        <span className="text-faint">{left + right}</span>
      </div>
    );
  }
  return (
    <div>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex w-full items-start rounded py-px text-left hover:bg-hover">
        <ChevronRight className={cx("mt-0.5 size-3.5 w-4 shrink-0 text-faint transition-transform duration-[120ms]", open && "rotate-90")} aria-hidden />
        <span>
          {label}
          <span className="text-faint">{open ? left : `${left} ${entries.length} ${entries.length === 1 ? "entry" : "entries"} ${right}`}</span>
        </span>
      </button>
      {open && (
        <div className="ml-[7px] border-l border-line pl-2">
          {entries.slice(0, limit).map(([key, child]) => (
            <Node key={key} name={key} value={child} depth={depth + 1} openTo={openTo} />
          ))}
          {entries.length > limit && (
            <button type="button" className="link ml-4" onClick={() => setLimit(limit + SLICE)}>
              {entries.length - limit} more
            </button>
          )}
        </div>
      )}
    </div>
  );
}

/** Any JSON value as a tree that opens and closes; `openTo` levels are open at first. */
export function JsonView({ value, openTo = 2, className }: { value: unknown; openTo?: number; className?: string }) {
  return (
    <div className={cx("group relative overflow-x-auto rounded-md border border-line bg-sunken py-2 pr-3 pl-1 font-mono text-mono", className)}>
      <CopyButton
        text={JSON.stringify(value, null, 2) ?? ""}
        label="Copy the JSON"
        className="absolute top-1 right-1 bg-sunken opacity-0 group-hover:opacity-100 focus-visible:opacity-100"
      />
      <Node value={value} depth={0} openTo={openTo} />
    </div>
  );
}
