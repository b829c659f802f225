import { cx } from "./cx";

/** A grey block in the place of what is loading. */
export function Skeleton({ className }: { className?: string }) {
  return <span aria-hidden className={cx("block animate-shimmer rounded bg-hover", className)} />;
}

// Fixed and uneven, so that a skeleton reads as text and does not flicker between renders.
const WIDTHS = ["w-3/5", "w-2/5", "w-1/2", "w-2/3", "w-1/3"];
const widthAt = (index: number) => WIDTHS[index % WIDTHS.length];
const indexes = (count: number) => Array.from({ length: count }, (_, index) => index);

export function SkeletonRows({ rows = 8, label = "Loading" }: { rows?: number; label?: string }) {
  return (
    <div role="status" aria-label={label}>
      {indexes(rows).map((index) => (
        <div key={index} className="flex h-9 items-center gap-4 border-b border-line px-6 max-phone:px-4">
          <Skeleton className="h-3 w-20 shrink-0" />
          <span className="flex-1">
            <Skeleton className={cx("h-3", widthAt(index))} />
          </span>
          <Skeleton className="h-3 w-16 shrink-0 max-phone:hidden" />
          <Skeleton className="h-3 w-10 shrink-0" />
        </div>
      ))}
    </div>
  );
}

export function SkeletonText({ lines = 3, label = "Loading" }: { lines?: number; label?: string }) {
  return (
    <div role="status" aria-label={label} className="flex flex-col gap-2.5">
      {indexes(lines).map((index) => (
        <Skeleton key={index} className={cx("h-3", widthAt(index))} />
      ))}
    </div>
  );
}

/** The shape of a page with a list: shown while the page's own code loads. */
export function SkeletonPage() {
  return (
    <div className="h-full">
      <div className="border-b border-line px-6 pt-5 pb-3 max-phone:px-4">
        <Skeleton className="h-7 w-32" />
        <div className="mt-3 flex gap-2">
          <Skeleton className="h-8 w-28" />
          <Skeleton className="h-8 w-28" />
        </div>
      </div>
      <SkeletonRows rows={12} label="Loading the page" />
    </div>
  );
}

/** The shape of a panel with a header and two sections. */
export function SkeletonPanel() {
  return (
    <div className="flex flex-col gap-6 p-5">
      <Skeleton className="h-5 w-2/3" />
      <SkeletonText lines={4} />
      <Skeleton className="h-28 w-full" />
      <SkeletonText lines={3} />
    </div>
  );
}
