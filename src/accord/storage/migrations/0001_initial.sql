-- Facts about the store itself: the incarnation is raised after a restore that may have lost acknowledged events.
CREATE TABLE meta (
    key {text} PRIMARY KEY,
    value TEXT NOT NULL
) {strict};

-- A process that runs agents. Its leases hold until expires_at.
CREATE TABLE node (
    id {text} PRIMARY KEY,
    expires_at {int} NOT NULL,
    draining {int} NOT NULL DEFAULT 0,
    info TEXT NOT NULL
) {hot};

-- A task: doc is its snapshot at doc_seq, later events are folded onto it. epoch is the current claim's fence.
-- updated_at moves with the state only, so that appending a chunk touches no index.
CREATE TABLE task (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    context_id {text} NOT NULL,
    agent {text} NOT NULL,
    owner {text} NOT NULL,
    origin TEXT,
    parent_id {text},
    state TEXT NOT NULL,
    doc TEXT NOT NULL,
    doc_seq {int} NOT NULL DEFAULT 0,
    last_seq {int} NOT NULL DEFAULT 0,
    min_seq {int} NOT NULL DEFAULT 1,
    epoch {int} NOT NULL DEFAULT 0,
    pushes {int} NOT NULL DEFAULT 0,
    cancel_at {int},
    deadline_at {int},
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    PRIMARY KEY (tenant, id)
) {hot};
CREATE INDEX task_by_time ON task (tenant, updated_at, id);
CREATE INDEX task_by_context ON task (tenant, context_id, updated_at, id);
CREATE INDEX task_by_parent ON task (tenant, parent_id) WHERE parent_id IS NOT NULL;

-- The log of each task; seq has no gaps and starts at 1.
CREATE TABLE event (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    seq {int} NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    at {int} NOT NULL,
    PRIMARY KEY (tenant, task_id, seq)
) {clustered};

-- What a send made, by what makes it the same send: the caller's message id or key.
CREATE TABLE idempotency (
    tenant {text} NOT NULL,
    key {text} NOT NULL,
    task_id {text} NOT NULL,
    expires_at {int} NOT NULL,
    PRIMARY KEY (tenant, key)
) {clustered};
CREATE INDEX idempotency_expiry ON idempotency (expires_at);

-- Work to do, now or at run_at; held by a node under an epoch.
CREATE TABLE job (
    id {identity},
    tenant {text} NOT NULL,
    queue {text} NOT NULL,
    kind {text} NOT NULL,
    key {text} NOT NULL,
    arg TEXT,
    priority {int} NOT NULL DEFAULT 0,
    run_at {int} NOT NULL,
    node {text},
    epoch {int} NOT NULL DEFAULT 0,
    attempts {int} NOT NULL DEFAULT 0,
    max_attempts {int} NOT NULL DEFAULT 3,
    UNIQUE (tenant, kind, key)
) {hot};
CREATE INDEX job_due ON job (queue, priority, run_at) WHERE node IS NULL;
CREATE INDEX job_held ON job (node) WHERE node IS NOT NULL;

-- A webhook: a cursor over its task's log.
CREATE TABLE push (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    id {text} NOT NULL,
    config TEXT NOT NULL,
    dialect TEXT NOT NULL,
    cursor {int} NOT NULL DEFAULT 0,
    attempts {int} NOT NULL DEFAULT 0,
    due_at {int},
    dead_at {int},
    node {text},
    epoch {int} NOT NULL DEFAULT 0,
    last_error TEXT,
    PRIMARY KEY (tenant, task_id, id)
) {hot};
CREATE INDEX push_due ON push (due_at) WHERE due_at IS NOT NULL AND node IS NULL;
CREATE INDEX push_held ON push (node) WHERE node IS NOT NULL;

-- What an agent's step gave, by its key: a step that is here is never run again.
CREATE TABLE step (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    key {text} NOT NULL,
    output TEXT NOT NULL,
    at {int} NOT NULL,
    PRIMARY KEY (tenant, task_id, key)
) {clustered};

-- Large parts, by the hash of their bytes.
CREATE TABLE blob (
    hash {text} PRIMARY KEY,
    size {int} NOT NULL,
    data {bytes} NOT NULL
) {strict};
