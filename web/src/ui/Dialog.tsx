import { X } from "lucide-react";
import { useEffect, useId, useRef, type ReactNode } from "react";
import { Button, IconButton, type ButtonKind } from "./Button";
import { cx } from "./cx";

interface DialogProps {
  title: string;
  open: boolean;
  onClose: () => void;
  /** Buttons at the foot, the main one last. */
  footer?: ReactNode;
  wide?: boolean;
  children: ReactNode;
}

/** A modal on the platform's own dialog element, which traps the focus, closes on Escape and gives the focus back. */
export function Dialog({ title, open, onClose, footer, wide, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const dialog = element.current;
    if (!dialog || !open) return;
    dialog.showModal();
    dialog.querySelector<HTMLElement>("[data-focus]")?.focus();
    return () => dialog.close();
  }, [open]);
  if (!open) return null;
  return (
    // A click beside it closes it, as Escape does.
    // oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions
    <dialog
      ref={element}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === element.current && onClose()}
      onKeyDown={(event) => event.stopPropagation()}
      className={cx("m-auto w-[calc(100%-32px)] animate-enter rounded-lg bg-raised p-0 shadow-float", wide ? "max-w-2xl" : "max-w-md")}
    >
      <div className="flex items-center gap-2 px-5 pt-4 pb-2">
        <h2 id={heading} className="flex-1 text-lg font-semibold">
          {title}
        </h2>
        <IconButton label="Close" size="small" onClick={onClose}>
          <X />
        </IconButton>
      </div>
      <div className="max-h-[70vh] overflow-y-auto px-5 pb-4">{children}</div>
      {footer && <div className="flex justify-end gap-2 border-t border-line px-5 py-3">{footer}</div>}
    </dialog>
  );
}

interface ConfirmProps {
  title: string;
  open: boolean;
  /** The verb on the button ("Cancel the task"), never "OK". */
  action: string;
  kind?: ButtonKind;
  /** Whether Enter confirms at once; otherwise the focus is on what changes nothing. */
  isFocused?: boolean;
  busy?: boolean;
  disabled?: boolean;
  onConfirm: () => void;
  onClose: () => void;
  children: ReactNode;
}

export function ConfirmDialog({ title, open, action, kind = "danger", isFocused, busy, disabled, onConfirm, onClose, children }: ConfirmProps) {
  const footer = (
    <>
      <Button onClick={onClose}>Keep as it is</Button>
      <Button kind={kind} data-focus={isFocused || undefined} busy={busy} disabled={disabled} onClick={onConfirm}>
        {action}
      </Button>
    </>
  );
  return (
    <Dialog title={title} open={open} onClose={onClose} footer={footer}>
      <div className="text-soft">{children}</div>
    </Dialog>
  );
}
