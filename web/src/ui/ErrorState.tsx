import { TriangleAlert } from "lucide-react";
import type { ReactNode } from "react";
import { Button } from "./Button";

interface ErrorStateProps {
  /** What failed: "The tasks could not be loaded". */
  title: string;
  error?: unknown;
  /** What is safe: "Nothing is lost: tasks are stored on the server." */
  safe?: ReactNode;
  onRetry?: () => void;
}

/** What failed, what is safe, and a way to try again. */
export function ErrorState({ title, error, safe, onRetry }: ErrorStateProps) {
  return (
    <div role="alert" className="mx-auto flex max-w-md flex-col items-center gap-3 px-6 py-16 text-center">
      <TriangleAlert className="size-6 text-red" aria-hidden strokeWidth={1.5} />
      <h2 className="font-semibold">{title}</h2>
      {error !== undefined && error !== null && <p className="text-sm break-words text-soft">{error instanceof Error ? error.message : String(error)}</p>}
      {safe && <p className="text-sm text-faint">{safe}</p>}
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}

/** A notice inside a page, with a border in its colour. */
export function Notice({ tone = "grey", icon, children }: { tone?: "grey" | "amber" | "red"; icon?: ReactNode; children: ReactNode }) {
  const looks = { grey: "border-line bg-sunken", amber: "border-amber-line bg-amber-tint", red: "border-red-line bg-red-tint" };
  return (
    <div className={`flex gap-2.5 rounded-md border px-3.5 py-3 text-sm ${looks[tone]}`}>
      {icon}
      <div className="min-w-0 flex-1">{children}</div>
    </div>
  );
}
