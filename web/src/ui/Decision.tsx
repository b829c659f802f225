import { Check, X } from "lucide-react";
import { useState } from "react";
import { Button } from "./Button";
import { Input } from "./Field";
import { useShortcut } from "./shortcuts";

interface DecisionProps {
  busy: boolean;
  /** One that fails has been told of by whoever sends; one may decide again. */
  onDecide: (approved: boolean, comment: string) => Promise<unknown>;
  /** Where it is the only one on the page, a and x decide while nothing is being typed; this is what their list calls it. */
  keysOf?: string;
}

/** Yes or no, with a comment that is kept: the same wherever somebody is asked. Enter in the comment decides nothing. */
export function Decision({ busy, onDecide, keysOf }: DecisionProps) {
  const [comment, setComment] = useState("");
  const [decided, setDecided] = useState<boolean | null>(null);
  const isOpen = !busy && decided === null;
  function decide(approved: boolean) {
    setDecided(approved);
    onDecide(approved, comment.trim()).then(undefined, () => setDecided(null));
  }
  useShortcut({ keys: "a", label: "Approve", group: keysOf ?? "" }, () => decide(true), isOpen && keysOf !== undefined);
  useShortcut({ keys: "x", label: "Reject", group: keysOf ?? "" }, () => decide(false), isOpen && keysOf !== undefined);
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
    </div>
  );
}
