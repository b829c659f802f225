import { Copy } from "lucide-react";
import { useEffect, useId, useRef, useState, type KeyboardEvent, type ReactNode } from "react";
import { IconButton } from "./Button";
import { copyText } from "./CopyButton";
import { cx } from "./cx";

export interface MenuItem {
  label: string;
  icon?: ReactNode;
  danger?: boolean;
  disabled?: boolean;
  onSelect: () => void;
}

interface MenuProps {
  label: string;
  icon: ReactNode;
  items: readonly MenuItem[];
  align?: "left" | "right";
  /** Above the button, at the foot of a page. */
  up?: boolean;
  /** Said above the actions. */
  head?: ReactNode;
}

/** A button that opens a list of actions. Arrow keys, Home, End and Escape work as in a native menu. */
export function Menu({ label, icon, items, align = "right", up, head }: MenuProps) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const id = useId();

  useEffect(() => {
    if (!open) return;
    root.current?.querySelector<HTMLElement>("[role=menuitem]:not(:disabled)")?.focus();
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
    if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close();
      return;
    }
    const entries = [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];
    const at = entries.indexOf(document.activeElement as HTMLElement);
    const next = { ArrowDown: at + 1, ArrowUp: at - 1 + entries.length, Home: 0, End: entries.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    entries[next % entries.length]?.focus();
  }

  return (
    <div ref={root} className="relative inline-flex">
      <IconButton label={label} aria-haspopup="menu" aria-expanded={open} aria-controls={open ? id : undefined} onClick={() => setOpen(!open)}>
        {icon}
      </IconButton>
      {open && (
        <div
          id={id}
          role="menu"
          tabIndex={-1}
          aria-label={label}
          onKeyDown={move}
          className={cx("absolute z-40 min-w-44 animate-enter rounded-md bg-raised p-1 shadow-float", align === "right" ? "right-0" : "left-0", up ? "bottom-full mb-1" : "top-full mt-1")}
        >
          {head}
          {items.map((item) => (
            <button
              key={item.label}
              type="button"
              role="menuitem"
              tabIndex={-1}
              disabled={item.disabled}
              onClick={() => {
                close();
                item.onSelect();
              }}
              className={cx(
                "flex h-8 w-full items-center gap-2 rounded px-2 text-left text-sm whitespace-nowrap hover:bg-hover focus:bg-hover disabled:opacity-50 [&>svg]:size-4",
                item.danger && "text-red",
              )}
            >
              {item.icon}
              {item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}

export interface Copies {
  id: string;
  /** The path of this object in the console; the link is made absolute. */
  path: string;
  curl?: string;
  python?: string;
}

/** Copies an object's id, its link, or the call that gets it. */
export function CopyMenu({ id, path, curl, python }: Copies) {
  const choices: [string, string | undefined][] = [
    ["Copy id", id],
    ["Copy link", new URL(path, window.location.origin).href],
    ["Copy as curl", curl],
    ["Copy as Python", python],
  ];
  const items = choices.flatMap(([label, text]) => (text === undefined ? [] : [{ label, onSelect: () => void copyText(text) }]));
  return <Menu label="Copy" icon={<Copy />} items={items} />;
}
