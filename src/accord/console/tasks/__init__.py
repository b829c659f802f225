"""Tasks as people look after them: lists, one task with its log and files, what waits for an answer, webhooks."""
