-- A conversation of a person with an agent, as the console shows it; its tasks have its context_id.
CREATE TABLE chat (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    owner {text} NOT NULL,
    context_id {text} NOT NULL,
    agent {text} NOT NULL,
    title TEXT NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    PRIMARY KEY (tenant, id)
) {strict};
CREATE INDEX chat_by_owner ON chat (tenant, owner, updated_at, id);
CREATE INDEX chat_by_context ON chat (tenant, context_id);
{on_postgres} ALTER TABLE chat DROP CONSTRAINT chat_pkey, ADD PRIMARY KEY (tenant, id);

-- What was said in it, as UI messages in JSON. data is what a message is about besides, such as {"artifactType": "task",
-- "taskId": ...}; context_id is the conversation's. An answer that is still coming is the agent's and has its task in
-- task_id: what it says is read from that one's log, after the message asked if it is there, and doc is null until it has
-- ended.
CREATE TABLE message (
    tenant {text} NOT NULL,
    chat_id {text} NOT NULL,
    seq {int} NOT NULL,
    id {text} NOT NULL,
    role {text} NOT NULL,
    context_id {text},
    agent {text},
    task_id {text},
    asked TEXT,
    data TEXT,
    doc TEXT,
    created_at {int} NOT NULL,
    PRIMARY KEY (tenant, chat_id, seq)
) {strict};
CREATE UNIQUE INDEX message_by_id ON message (tenant, chat_id, id);
CREATE INDEX message_by_task ON message (tenant, task_id) WHERE task_id IS NOT NULL;
{on_postgres} ALTER TABLE message DROP CONSTRAINT message_pkey, ADD PRIMARY KEY (tenant, chat_id, seq);

-- Somebody who has signed in with a browser; hash is the SHA-256 of what its cookie holds. As with keys the tenant does not
-- come first, and null is any. It ends with the key that key_id names, or where proof, made of the cookie and of what was
-- presented, fits nothing any more that the settings have.
CREATE TABLE session (
    hash {text} PRIMARY KEY,
    owner {text} NOT NULL,
    tenant {text},
    roles TEXT NOT NULL,
    scheme TEXT NOT NULL,
    key_id {text},
    proof TEXT,
    created_at {int} NOT NULL,
    expires_at {int} NOT NULL
) {clustered};
CREATE INDEX session_expiry ON session (expires_at);

-- Attempts to deliver webhooks, counted for each: what was posted and answered, shortened and without secrets. seq is the
-- event's number in its task's log.
CREATE TABLE push_attempt (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    push_id {text} NOT NULL,
    id {int} NOT NULL,
    seq {int} NOT NULL,
    attempt {int} NOT NULL,
    at {int} NOT NULL,
    duration_ms {int} NOT NULL,
    status {int},
    error TEXT,
    detail TEXT NOT NULL,
    PRIMARY KEY (tenant, task_id, push_id, id)
) {clustered};
