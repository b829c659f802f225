import type { RerunView } from "@/api/types";
import { ConfirmDialog, ErrorState, SkeletonText } from "@/ui";
import { useRerun, useRerunPreview, type Again } from "./queries";

interface RerunDialogProps {
  runId: string;
  how: Again;
  onClose: () => void;
}

/** Asks before steps run again: their commands and calls happen a second time, and old approvals may stay good. */
export function RerunDialog({ runId, how, onClose }: RerunDialogProps) {
  const preview = useRerunPreview(runId, how);
  const rerun = useRerun(runId);
  const title = how.fresh ? "Run everything again?" : how.from ? `Re-run from ${how.from}?` : "Re-run from the failure?";
  return (
    <ConfirmDialog
      open
      title={title}
      action={preview.data ? `Run ${counted(preview.data.again)} again` : "Run again"}
      kind="primary"
      busy={rerun.isPending || preview.isPending}
      disabled={!preview.data}
      onClose={onClose}
      onConfirm={() => rerun.mutate(how, { onSettled: onClose })}
    >
      {preview.isPending && <SkeletonText lines={3} label="Looking which steps run again" />}
      {preview.isError && <ErrorState title="It cannot be run again like this" error={preview.error} />}
      {preview.data && <Preview preview={preview.data} />}
    </ConfirmDialog>
  );
}

function Preview({ preview }: { preview: RerunView }) {
  return (
    <div className="flex flex-col gap-2 break-words">
      <p>A new run begins. What these steps do outside happens a second time.</p>
      <p>
        <span className="font-medium text-ink">Run again:</span> {listed(preview.again)}
      </p>
      {preview.kept.length > 0 && (
        <p>
          <span className="font-medium text-ink">Kept:</span> {listed(preview.kept)}
        </p>
      )}
      {preview.approvals.length > 0 && (
        <p className="text-amber">
          The approval of {listed(preview.approvals)} stays good and is not asked for again. To decide again, re-run from {preview.approvals.at(-1)}.
        </p>
      )}
    </div>
  );
}

const MOST_NAMES = 20;

const counted = (names: readonly string[]): string => (names.length === 1 ? "1 step" : `${names.length} steps`);

export function listed(names: readonly string[]): string {
  const shown = names.slice(0, MOST_NAMES).join(", ");
  return names.length > MOST_NAMES ? `${shown} and ${names.length - MOST_NAMES} more` : shown || "nothing";
}
