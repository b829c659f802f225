import { Bot, Inbox, ListChecks, MessageSquare, Network, Send, Library, type LucideIcon } from "lucide-react";

/** The pages of the rail, in its order; `key` is the letter after "g". */
export const PLACES = [
  { to: "/chat", label: "Chat", icon: MessageSquare, key: "c" },
  { to: "/inbox", label: "Inbox", icon: Inbox, key: "i" },
  { to: "/tasks", label: "Tasks", icon: ListChecks, key: "t" },
  { to: "/runs", label: "Runs", icon: Network, key: "r" },
  { to: "/agents", label: "Agents", icon: Bot, key: "a" },
  { to: "/deliveries", label: "Deliveries", icon: Send, key: "d" },
  { to: "/registry", label: "Registry", icon: Library, key: "l" },
] as const satisfies readonly { to: string; label: string; icon: LucideIcon; key: string }[];
