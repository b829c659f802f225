import { Check, ChevronDown } from "lucide-react";
import { useEffect, useId, useRef, useState, type KeyboardEvent } from "react";
import type { Model } from "@/api/types";
import { cx } from "@/ui";

/** Who is asked. A button that opens a list with what each agent does; arrows, Home, End, letters and Escape work. */
export function AgentPicker({ models, value, onChange }: { models: readonly Model[]; value: string; onChange: (id: string) => void }) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const list = useId();
  const current = models.find((model) => model.id === value);

  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>("[aria-selected=true], [role=option]")?.focus();
    const outside = (event: PointerEvent) => {
      if (event.target instanceof Node && !root.current?.contains(event.target)) setOpen(false);
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);

  function close() {
    setOpen(false);
    root.current?.querySelector<HTMLElement>("[aria-haspopup]")?.focus();
  }

  function move(event: KeyboardEvent) {
    const options = [...(root.current?.querySelectorAll<HTMLElement>("[role=option]") ?? [])];
    const at = options.indexOf(document.activeElement as HTMLElement);
    const named = event.key.length === 1 ? models.findIndex((model, index) => index > at && model.name.toLowerCase().startsWith(event.key.toLowerCase())) : -1;
    const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: options.length - 1 }[event.key] ?? (named >= 0 ? named : undefined);
    if (event.key === "Escape" || event.key === "Tab") close();
    if (next === undefined && event.key !== "Escape" && event.key !== "Tab") return;
    event.preventDefault();
    event.stopPropagation();
    if (next !== undefined) options[(next + options.length) % options.length]?.focus();
  }

  return (
    <div ref={root} className="relative min-w-0">
      <button
        type="button"
        aria-haspopup="listbox"
        aria-expanded={open}
        aria-controls={open ? list : undefined}
        aria-label={`Agent: ${current?.name ?? "choose one"}`}
        onClick={() => setOpen(!open)}
        className="flex h-8 max-w-full items-center gap-1 rounded-md px-2 text-sm font-medium text-soft transition-colors duration-[120ms] hover:bg-hover hover:text-ink"
      >
        <span className="truncate">{current?.name ?? "Choose an agent"}</span>
        <ChevronDown className="size-3.5 shrink-0 text-faint" aria-hidden />
      </button>
      {open && (
        <div
          id={list}
          role="listbox"
          aria-label="Agents"
          tabIndex={-1}
          onKeyDown={move}
          className="absolute bottom-full left-0 z-30 mb-1 max-h-[min(420px,60vh)] w-80 max-w-[calc(100vw-48px)] animate-enter overflow-y-auto rounded-md bg-raised p-1 shadow-float"
        >
          {models.map((model) => (
            <button
              key={model.id}
              type="button"
              role="option"
              aria-selected={model.id === value}
              tabIndex={-1}
              onClick={() => {
                onChange(model.id);
                close();
              }}
              className={cx("flex w-full items-start gap-2 rounded px-2 py-1.5 text-left hover:bg-hover focus:bg-hover focus-visible:outline-offset-[-2px]")}
            >
              <Check className={cx("mt-0.5 size-4 shrink-0 text-accent-strong", model.id !== value && "invisible")} aria-hidden />
              <span className="min-w-0 flex-1">
                <span className="flex items-baseline gap-2">
                  <span className="truncate text-sm font-medium">{model.name}</span>
                  {model.mode === "task" && <span className="shrink-0 text-xs text-faint">works in the background</span>}
                </span>
                <span className="line-clamp-2 text-xs text-faint">{model.description}</span>
              </span>
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
