import { useParams, useSearch } from "@tanstack/react-router";
import { Conversation } from "./Conversation";

/** One chat, by its address. */
export default function ChatDetail() {
  const { chatId } = useParams({ from: "/console/chat/$chatId" });
  const { task } = useSearch({ from: "/console/chat" });
  return <Conversation key={chatId} id={chatId} isNew={false} openTask={task} />;
}
