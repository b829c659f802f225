import { Check, X } from "lucide-react";
import { useState } from "react";
import { Button } from "./Button";
import { ConfirmDialog } from "./Dialog";
import { Input } from "./Field";
import { useShortcut } from "./shortcuts";

interface DecisionProps {
  busy: boolean;
  /** One that fails has been told of by whoever sends; one may decide again. */
  onDecide: (approved: boolean, comment: string) => Promise<unknown>;
  /** Where the user selected this decision, a and x open a dialog that names the subject; without it there are no keys. */
  keys?: { group: string; subject: string };
}

/** Approve or reject, with an optional comment: the same form on every page. Enter in the comment decides nothing. */
export function Decision({ busy, onDecide, keys }: DecisionProps) {
  const [comment, setComment] = useState("");
  const [decided, setDecided] = useState<boolean | null>(null);
  const [pressed, setPressed] = useState<boolean | null>(null);
  const isOpen = !busy && decided === null;
  function decide(approved: boolean) {
    setPressed(null);
    setDecided(approved);
    onDecide(approved, comment.trim()).then(undefined, () => setDecided(null));
  }
  useShortcut({ keys: "a", label: "Approve", group: keys?.group ?? "" }, () => setPressed(true), isOpen && keys !== undefined);
  useShortcut({ keys: "x", label: "Reject", group: keys?.group ?? "" }, () => setPressed(false), isOpen && keys !== undefined);
  const verb = pressed ? "Approve" : "Reject";
  return (
    <div className="flex flex-wrap items-center gap-2">
      <Input aria-label="Comment" placeholder="Comment (optional)" value={comment} onChange={(event) => setComment(event.target.value)} className="min-w-40 flex-1 basis-48 max-phone:basis-full" />
      <div className="flex gap-2">
        <Button kind="primary" icon={<Check className="size-3.5" aria-hidden />} disabled={!isOpen} busy={busy && decided === true} onClick={() => decide(true)}>
          Approve
        </Button>
        <Button kind="danger" icon={<X className="size-3.5" aria-hidden />} disabled={!isOpen} busy={busy && decided === false} onClick={() => decide(false)}>
          Reject
        </Button>
      </div>
      <ConfirmDialog
        title={`${verb} "${keys?.subject ?? ""}"?`}
        open={pressed !== null && isOpen}
        action={verb}
        kind={pressed ? "primary" : "danger"}
        isFocused
        onConfirm={() => decide(pressed === true)}
        onClose={() => setPressed(null)}
      >
        {pressed ? "The work that waits for this approval continues at once." : "The work that waits for this approval does not continue."}
        {comment.trim() && <p className="mt-2 break-words">Comment: {comment.trim()}</p>}
      </ConfirmDialog>
    </div>
  );
}
