"""Chats: people talk to agents, the AI SDK's way, and what is said is kept."""
