import { useId, type KeyboardEvent, type ReactNode } from "react";
import { cx } from "./cx";

export interface Tab {
  id: string;
  label: string;
  count?: number;
  content: ReactNode;
}

/** Tabs whose selection the caller keeps, normally in the URL. Arrow keys move between them. */
export function Tabs({ label, tabs, selected, onSelect, className }: { label: string; tabs: readonly Tab[]; selected: string; onSelect: (id: string) => void; className?: string }) {
  const base = useId();
  const current = tabs.find((tab) => tab.id === selected) ?? tabs[0];
  if (!current) return null;

  function move(event: KeyboardEvent<HTMLDivElement>) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const next = tabs[(tabs.indexOf(current as Tab) + step + tabs.length) % tabs.length];
    if (!next) return;
    onSelect(next.id);
    document.getElementById(`${base}-${next.id}`)?.focus();
  }

  return (
    <div className={className}>
      <div role="tablist" aria-label={label} tabIndex={-1} onKeyDown={move} className="flex gap-5 overflow-x-auto border-b border-line">
        {tabs.map((tab) => (
          <button
            key={tab.id}
            id={`${base}-${tab.id}`}
            type="button"
            role="tab"
            aria-selected={tab === current}
            aria-controls={`${base}-${tab.id}-panel`}
            tabIndex={tab === current ? 0 : -1}
            onClick={() => onSelect(tab.id)}
            className={cx(
              "-mb-px h-9 border-b-2 text-sm whitespace-nowrap transition-colors duration-[120ms]",
              tab === current ? "border-accent font-medium text-ink" : "border-transparent text-faint hover:text-ink",
            )}
          >
            {tab.label}
            {tab.count !== undefined && <span className="ml-1.5 text-xs text-faint">{tab.count}</span>}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${base}-${current.id}-panel`} aria-labelledby={`${base}-${current.id}`} className="pt-4">
        {current.content}
      </div>
    </div>
  );
}
