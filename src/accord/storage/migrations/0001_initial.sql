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

-- A task. epoch is the current claim's fence. updated_at is the time of its status and moves with that only, so that
-- appending a chunk touches no index. pushes and children are how many webhooks it has and tasks it has started.
CREATE TABLE task (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    context_id {text} NOT NULL,
    agent {text} NOT NULL,
    owner {text} NOT NULL,
    origin TEXT,
    parent_id {text},
    state {text} NOT NULL,
    last_seq {int} NOT NULL DEFAULT 0,
    min_seq {int} NOT NULL DEFAULT 1,
    epoch {int} NOT NULL DEFAULT 0,
    pushes {int} NOT NULL DEFAULT 0,
    children {int} NOT NULL DEFAULT 0,
    deadline_at {int},
    updated_at {int} NOT NULL,
    PRIMARY KEY (tenant, id)
) {hot};
CREATE INDEX task_by_time ON task (tenant, updated_at, id);
CREATE INDEX task_by_owner ON task (tenant, owner, updated_at, id);
CREATE INDEX task_by_context ON task (tenant, context_id, updated_at, id);
CREATE INDEX task_by_parent ON task (tenant, parent_id, state) WHERE parent_id IS NOT NULL;
CREATE INDEX task_ended ON task (updated_at)
    WHERE state IN ('completed', 'failed', 'canceled', 'rejected', 'unknown');
CREATE INDEX task_with_log ON task (updated_at)
    WHERE state IN ('completed', 'failed', 'canceled', 'rejected') AND min_seq = 1;
-- Most tasks end well, and need no index by their state then.
CREATE INDEX task_open ON task (tenant, state, owner, updated_at, id)
    WHERE state IN ('submitted', 'working', 'input_required', 'auth_required');
CREATE INDEX task_amiss ON task (tenant, state, owner, updated_at, id)
    WHERE state IN ('failed', 'canceled', 'rejected', 'unknown');

-- A task's snapshot: the task as JSON after event seq; later events are folded onto it. It has a row of its own because
-- SQLite rewrites a whole row when any column changes.
CREATE TABLE snapshot (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    seq {int} NOT NULL,
    doc TEXT NOT NULL,
    PRIMARY KEY (tenant, task_id)
) {hot};

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

-- What a send made, by what makes it the same send: the caller's message id or key. It counts while the task is there.
CREATE TABLE idempotency (
    tenant {text} NOT NULL,
    key {text} NOT NULL,
    task_id {text} NOT NULL,
    expires_at {int} NOT NULL,
    PRIMARY KEY (tenant, key)
) {clustered};
CREATE INDEX idempotency_expiry ON idempotency (expires_at);

-- Work to do, now or at run_at; held by a node under an epoch. Parked work waits until somebody wakes it, or, with a
-- child, until that task no longer asks the question that this one has passed on.
CREATE TABLE job (
    id {identity},
    tenant {text} NOT NULL,
    queue {text} NOT NULL,
    kind {text} NOT NULL,
    key {text} NOT NULL,
    arg TEXT,
    priority {int} NOT NULL DEFAULT 0,
    run_at {int} NOT NULL,
    parked {int} NOT NULL DEFAULT 0,
    child {text},
    node {text},
    epoch {int} NOT NULL DEFAULT 0,
    attempts {int} NOT NULL DEFAULT 0,
    max_attempts {int} NOT NULL DEFAULT 3,
    UNIQUE (tenant, kind, key)
) {hot};
CREATE INDEX job_due ON job (queue, tenant, priority, run_at, id) WHERE node IS NULL AND parked = 0;
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
CREATE INDEX push_dead ON push (dead_at) WHERE dead_at IS NOT NULL;

-- What an agent's step gave, by its key: a step that is here is never run again.
CREATE TABLE step (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    key {text} NOT NULL,
    output TEXT NOT NULL,
    at {int} NOT NULL,
    PRIMARY KEY (tenant, task_id, key)
) {clustered};

-- Large parts, by the hash of their bytes; data is null where the bytes are kept outside of the database. at is when they
-- were last put, because the reference follows a little later; below zero it is when their removal began, negated.
CREATE TABLE blob (
    tenant {text} NOT NULL,
    hash {text} NOT NULL,
    size {int} NOT NULL,
    at {int} NOT NULL,
    data {bytes},
    PRIMARY KEY (tenant, hash)
) {strict};

-- Which task needs which large parts; what no task needs is removed.
CREATE TABLE blob_ref (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    hash {text} NOT NULL,
    PRIMARY KEY (tenant, task_id, hash)
) {clustered};
CREATE INDEX blob_ref_by_hash ON blob_ref (tenant, hash);

-- Who asked for what, and what came of it. Ids rise with time, so that the oldest rows are those with the lowest.
CREATE TABLE audit (
    id {identity},
    tenant {text} NOT NULL,
    at {int} NOT NULL,
    owner {text} NOT NULL,
    scheme TEXT,
    peer TEXT,
    dialect TEXT,
    agent {text} NOT NULL,
    operation {text} NOT NULL,
    task_id {text},
    outcome {text} NOT NULL
) {strict};
CREATE INDEX audit_by_time ON audit (tenant, at, id);

-- A key that callers authenticate with; hash is the SHA-256 of its secret. Unlike everywhere else the tenant does not come
-- first, because a key is looked up to find out which tenant its holder has; null is any. used_at is about when.
CREATE TABLE api_key (
    id {text} PRIMARY KEY,
    hash TEXT NOT NULL,
    name TEXT NOT NULL,
    owner {text} NOT NULL,
    tenant {text},
    roles TEXT NOT NULL,
    created_at {int} NOT NULL,
    expires_at {int},
    used_at {int},
    revoked_at {int}
) {strict};

-- Two indexes that begin with the tenant seem equally good for a lookup by key while their table is empty. PostgreSQL
-- then takes the newer one and keeps to that plan while the table grows, so the keys must be the newest.
{on_postgres} ALTER TABLE task DROP CONSTRAINT task_pkey, ADD PRIMARY KEY (tenant, id);
{on_postgres} ALTER TABLE idempotency DROP CONSTRAINT idempotency_pkey, ADD PRIMARY KEY (tenant, key);
{on_postgres} ALTER TABLE blob_ref DROP CONSTRAINT blob_ref_pkey, ADD PRIMARY KEY (tenant, task_id, hash);
