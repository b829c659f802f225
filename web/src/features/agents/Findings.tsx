import { CircleCheck } from "lucide-react";
import type { Finding } from "@/api/types";
import { EmptyState } from "@/ui";
import { SeverityMark } from "./look";

/** What is to be said about a card, the gravest first. */
export function Findings({ findings }: { findings: readonly Finding[] }) {
  if (findings.length === 0) return <EmptyState icon={CircleCheck} title="Nothing to be said about this card" />;
  return (
    <ul className="overflow-hidden rounded-md border border-line">
      {findings.map((finding) => (
        <li key={`${finding.where} ${finding.text}`} className="flex gap-3 border-b border-line px-3 py-2 last:border-b-0 max-phone:flex-col max-phone:gap-1">
          <SeverityMark severity={finding.severity} />
          <div className="min-w-0 flex-1 text-sm">
            <p className="break-words">{finding.text}</p>
            {finding.where && <code className="break-all text-faint">{finding.where}</code>}
          </div>
        </li>
      ))}
    </ul>
  );
}
