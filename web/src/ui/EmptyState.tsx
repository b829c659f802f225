import type { LucideIcon } from "lucide-react";
import type { ReactNode } from "react";
import { CopyButton } from "./CopyButton";

interface EmptyStateProps {
  icon?: LucideIcon;
  title: string;
  children?: ReactNode;
  /** The next thing to type, ready to copy. */
  command?: string;
  action?: ReactNode;
}

/** Nothing is here, and what to do next. */
export function EmptyState({ icon: Icon, title, children, command, action }: EmptyStateProps) {
  return (
    <div className="mx-auto flex w-full max-w-md flex-col items-center gap-3 px-6 py-16 text-center">
      {Icon && <Icon className="size-6 text-faint" aria-hidden strokeWidth={1.5} />}
      <h2 className="font-semibold">{title}</h2>
      {children && <div className="text-sm text-soft">{children}</div>}
      {command && <Command text={command} />}
      {action}
    </div>
  );
}

/** One shell command with a copy button. */
export function Command({ text }: { text: string }) {
  return (
    <div className="flex max-w-full items-center gap-1 rounded-md border border-line bg-sunken py-1 pr-1 pl-3 text-left">
      <code className="min-w-0 flex-1 overflow-x-auto whitespace-pre">{text}</code>
      <CopyButton text={text} label="Copy the command" />
    </div>
  );
}
