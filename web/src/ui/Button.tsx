import type { ButtonHTMLAttributes, ReactNode, Ref } from "react";
import { cx } from "./cx";

export type ButtonKind = "primary" | "secondary" | "ghost" | "danger";

const KINDS: Record<ButtonKind, string> = {
  primary: "bg-accent-strong text-on-accent border-transparent hover:opacity-90 dark:bg-accent",
  secondary: "bg-raised text-ink border-line-strong hover:bg-hover",
  ghost: "bg-transparent text-soft border-transparent hover:bg-hover hover:text-ink",
  danger: "bg-raised text-red border-red-line hover:bg-red-tint",
};

export interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: ButtonKind;
  size?: "small" | "normal";
  icon?: ReactNode;
  /** Shows that the action is under way and takes no second click. */
  busy?: boolean;
  ref?: Ref<HTMLButtonElement>;
}

export function Button({ kind = "secondary", size = "normal", icon, busy, disabled, className, children, ...rest }: ButtonProps) {
  return (
    <button
      type="button"
      {...rest}
      disabled={disabled || busy}
      aria-busy={busy || undefined}
      className={cx(
        "inline-flex shrink-0 items-center justify-center gap-1.5 rounded-md border font-medium whitespace-nowrap select-none",
        "transition-[background-color,opacity] duration-[120ms] ease-out disabled:cursor-not-allowed disabled:opacity-50",
        size === "small" ? "h-7 px-2 text-xs" : "h-8 px-3 text-sm",
        busy && "animate-shimmer",
        KINDS[kind],
        className,
      )}
    >
      {icon}
      {children}
    </button>
  );
}

export interface IconButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, "aria-label"> {
  /** What the button does, in words: its accessible name and its tooltip. */
  label: string;
  size?: "small" | "normal";
  pressed?: boolean;
  ref?: Ref<HTMLButtonElement>;
}

export function IconButton({ label, size = "normal", pressed, className, children, ...rest }: IconButtonProps) {
  return (
    <button
      type="button"
      title={label}
      {...rest}
      aria-label={label}
      aria-pressed={pressed}
      className={cx(
        "inline-flex shrink-0 items-center justify-center rounded-md text-faint transition-colors duration-[120ms]",
        "hover:bg-hover hover:text-ink disabled:cursor-not-allowed disabled:opacity-50 [&>svg]:size-4",
        size === "small" ? "size-6" : "size-8",
        pressed && "bg-active text-ink",
        className,
      )}
    >
      {children}
    </button>
  );
}
