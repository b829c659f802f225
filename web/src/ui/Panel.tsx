import { X } from "lucide-react";
import { useEffect, useRef, type ReactNode, type RefObject } from "react";
import { IconButton } from "./Button";
import { cx } from "./cx";
import { useShortcut } from "./shortcuts";

interface PanelProps {
  /** The accessible name; the header shows `title` if given. */
  label: string;
  title?: ReactNode;
  actions?: ReactNode;
  onClose: () => void;
  /** Takes the whole page, with its content in a readable column. */
  isFull?: boolean;
  children: ReactNode;
}

/**
 * Who opens a panel from within the page goes on in it, and is back where they were when it closes. A page that is opened
 * at its address begins at its top, and a form in the panel that has taken the focus keeps it.
 */
function useFocusWithin(panel: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const element = panel.current;
    const from = document.activeElement;
    if (!element || element.contains(from) || !(from instanceof HTMLElement) || !from.closest("main")) return;
    element.focus({ preventScroll: true });
    return () => {
      const isElsewhere = document.activeElement !== document.body && !element.contains(document.activeElement);
      if (!isElsewhere && from.isConnected) from.focus({ preventScroll: true });
    };
  }, [panel]);
}

/**
 * Slides in from the right, 560 px wide, beside the list it belongs to; over it where there is no room.
 * It is not modal: the list stays usable. The route that shows it gives it its own URL. Escape closes it.
 */
export function Panel({ label, title, actions, onClose, isFull, children }: PanelProps) {
  useShortcut({ keys: "Escape", label: "Close the panel", group: "Panel" }, onClose);
  const element = useRef<HTMLElement>(null);
  useFocusWithin(element);
  return (
    <aside
      ref={element}
      tabIndex={-1}
      aria-label={label}
      className={cx(
        "flex h-full shrink-0 flex-col bg-bg outline-none",
        isFull
          ? "w-full"
          : "w-[560px] animate-slide border-l border-line max-rail:fixed max-rail:inset-y-0 max-rail:right-0 max-rail:z-30 max-rail:h-auto max-rail:max-w-full max-rail:shadow-float max-phone:w-full",
      )}
    >
      <div className="flex min-h-14 shrink-0 items-center gap-1 border-b border-line py-2 pr-3 pl-5">
        <div className="min-w-0 flex-1 truncate font-semibold">{title ?? label}</div>
        {actions}
        <IconButton label="Close (Esc)" onClick={onClose}>
          <X />
        </IconButton>
      </div>
      <div className="min-h-0 flex-1 overflow-y-auto">{isFull ? <div className="mx-auto max-w-4xl">{children}</div> : children}</div>
    </aside>
  );
}
