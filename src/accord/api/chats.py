"""Chats of the console: conversations with an agent, their messages and answers."""

from accord.api.storage import reads, writes
from accord.storage.commands import chats
from accord.storage.commands.chats import (
    ASSISTANT,
    TOPIC,
    USER,
    Chat,
    ChatMessage,
    DuplicateMessage,
    NewChatTurn,
    NoSuchChat,
    chat_of_topic,
)

# fmt: off
__all__ = [
    "ASSISTANT", "TOPIC", "USER", "Chat", "ChatMessage", "DuplicateMessage", "NewChatTurn", "NoSuchChat",
    "chat_of_topic", "delete", "find", "find_by_context", "finish_answer", "link_task", "list_chats",
    "list_messages", "list_pending_answers", "read_message_pair", "rename", "rows", "start_turn", "withdraw_answer",
]
# fmt: on

find = reads(chats.find)
find_by_context = reads(chats.find_by_context)
list_chats = reads(chats.list_chats)
list_messages = reads(chats.list_messages)
list_pending_answers = reads(chats.list_pending_answers)
read_message_pair = reads(chats.read_message_pair)
rows = reads(chats.rows)
rename = writes(chats.rename)
delete = writes(chats.delete)
start_turn = writes(chats.start_turn)
link_task = writes(chats.link_task)
finish_answer = writes(chats.finish_answer)
withdraw_answer = writes(chats.withdraw_answer)
