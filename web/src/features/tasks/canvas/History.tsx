import { cx } from "@/ui";
import type { Message } from "../a2a";
import { PartView } from "./PartView";

/** What was said, as messages: who speaks is said in words, not only by the side. */
export function History({ messages, agent }: { messages: readonly Message[]; agent: string }) {
  return (
    <ol className="flex flex-col gap-4">
      {messages.map((message, index) => (
        <li key={message.id || index} className={cx("border-l-2 pl-3", message.fromUser ? "border-accent" : "border-line-strong")}>
          <div className="mb-0.5 text-xs text-faint">{message.fromUser ? "User" : agent}</div>
          <div className="flex flex-col gap-2">
            {message.parts.map((part, at) => (
              <PartView key={at} part={part} />
            ))}
          </div>
        </li>
      ))}
    </ol>
  );
}
