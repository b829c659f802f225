import type { ReactNode } from "react";
import { cx } from "./cx";

interface PageProps {
  title: ReactNode;
  /** To the right of the title: search, actions. */
  actions?: ReactNode;
  /** The row of filters below the title. */
  toolbar?: ReactNode;
  /** What the list holds, in words ("128 tasks"); announced when it changes. */
  count?: ReactNode;
  /** A list fills the page and scrolls by itself; a document is padded and scrolls as one. */
  fill?: boolean;
  /** Something that slides in beside the page, usually a Panel. */
  panel?: ReactNode;
  children: ReactNode;
}

/** The frame of every page: title, toolbar, count, body, and room for a panel on the right. */
export function Page({ title, actions, toolbar, count, fill, panel, children }: PageProps) {
  return (
    <div className="flex h-full min-w-0">
      <section className="flex h-full min-w-0 flex-1 flex-col">
        <header className="shrink-0 border-b border-line px-6 pt-5 pb-3 max-phone:px-4 max-phone:pt-4">
          <div className="flex min-h-8 flex-wrap items-center gap-x-3 gap-y-2">
            <h1 className="min-w-0 flex-1 truncate text-xl font-semibold tracking-tight">{title}</h1>
            {!toolbar && <Count>{count}</Count>}
            {actions}
          </div>
          {toolbar && (
            <div className="mt-3 flex flex-wrap items-center gap-2">
              {toolbar}
              <Count className="max-phone:ml-0 max-phone:w-full">{count}</Count>
            </div>
          )}
        </header>
        <div className={cx("min-h-0 flex-1", fill ? "flex flex-col" : "overflow-y-auto p-6 max-phone:p-4")}>{children}</div>
      </section>
      {panel}
    </div>
  );
}

function Count({ children, className }: { children: ReactNode; className?: string }) {
  if (!children) return null;
  return (
    <span role="status" className={cx("ml-auto text-xs text-faint", className)}>
      {children}
    </span>
  );
}

/** A titled part of a page or panel. */
export function Section({ title, actions, children, className }: { title: ReactNode; actions?: ReactNode; children: ReactNode; className?: string }) {
  return (
    <section className={cx("flex flex-col gap-2", className)}>
      <div className="flex min-h-6 items-center gap-2">
        <h2 className="flex-1 text-sm font-semibold">{title}</h2>
        {actions}
      </div>
      {children}
    </section>
  );
}
