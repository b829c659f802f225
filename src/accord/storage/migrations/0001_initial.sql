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
-- Runs of workflows among all tasks: each notes first where it comes from.
CREATE INDEX step_of_run ON step (task_id) WHERE key = 'flow-run';

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

-- An agent that was published: its card as it was given, under a name like org/agent in lower case. words is what a search
-- looks through. A name stays with whoever took it, also while it is not active; one that is public is so for all tenants.
CREATE TABLE listing (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    owner {text} NOT NULL,
    handle {text} NOT NULL,
    visibility {text} NOT NULL,
    active {int} NOT NULL DEFAULT 1,
    revision {int} NOT NULL DEFAULT 1,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    words TEXT NOT NULL,
    tee {text},
    card TEXT NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    PRIMARY KEY (tenant, id)
) {strict};
CREATE UNIQUE INDEX listing_by_id ON listing (id);
CREATE UNIQUE INDEX listing_by_handle ON listing (tenant, handle);
CREATE UNIQUE INDEX listing_public ON listing (handle) WHERE visibility = 'public';
{on_postgres} ALTER TABLE listing DROP CONSTRAINT listing_pkey, ADD PRIMARY KEY (tenant, id);

-- The tags of a published agent, in lower case.
CREATE TABLE listing_tag (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    tag {text} NOT NULL,
    PRIMARY KEY (tenant, id, tag)
) {clustered};

-- Whether a published agent was there when it was last looked for, and when to look again; whoever looks first moves
-- due_at on, so that nobody else looks meanwhile. It has a row of its own because it changes often and cards do not.
CREATE TABLE listing_check (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    due_at {int} NOT NULL,
    failures {int} NOT NULL DEFAULT 0,
    state TEXT,
    detail TEXT,
    checked_at {int},
    up_at {int},
    PRIMARY KEY (tenant, id)
) {hot};
CREATE INDEX listing_check_due ON listing_check (due_at);
{on_postgres} ALTER TABLE listing_check DROP CONSTRAINT listing_check_pkey, ADD PRIMARY KEY (tenant, id);

-- A task that is done by an agent elsewhere, and what that agent has last said of it. remote_id is the task's id there
-- and context_id its conversation; mode is how its reports get here. sent counts the caller's messages that it has accepted, tries the times that the next
-- one could not be sent, polls how often it was asked in vain. stamp and seq order what it reports, mark is the digest of
-- its last status. asks is how often it had to be asked for what a report left out, and looked how often that was done.
-- version moves with every change; cancel_at is when to tell it that the task was cancelled.
CREATE TABLE remote (
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    agent {text} NOT NULL,
    remote_id {text},
    context_id TEXT,
    mode TEXT,
    state {text},
    stamp {int},
    seq {int},
    mark TEXT,
    sent {int} NOT NULL DEFAULT 0,
    tries {int} NOT NULL DEFAULT 0,
    polls {int} NOT NULL DEFAULT 0,
    asks {int} NOT NULL DEFAULT 0,
    looked {int} NOT NULL DEFAULT 0,
    heard_at {int} NOT NULL,
    asked_at {int} NOT NULL DEFAULT 0,
    version {int} NOT NULL DEFAULT 0,
    cancel_at {int},
    cancels {int} NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, task_id)
) {hot};
CREATE INDEX remote_by_id ON remote (agent, remote_id) WHERE remote_id IS NOT NULL;
CREATE INDEX remote_cancelled ON remote (cancel_at) WHERE cancel_at IS NOT NULL;

-- What an agent elsewhere shows when it reports on a task: hash is the SHA-256 of the token that it was given. The tenant
-- does not come first, because a token is looked up to find out which task it belongs to.
CREATE TABLE remote_token (
    hash {text} PRIMARY KEY,
    tenant {text} NOT NULL,
    task_id {text} NOT NULL,
    expires_at {int}
) {clustered};
CREATE INDEX remote_token_of ON remote_token (tenant, task_id);

-- What an agent elsewhere calls a conversation, where it does not take our name for it.
CREATE TABLE remote_context (
    tenant {text} NOT NULL,
    agent {text} NOT NULL,
    owner {text} NOT NULL,
    context_id {text} NOT NULL,
    remote_id TEXT NOT NULL,
    PRIMARY KEY (tenant, agent, owner, context_id)
) {clustered};

-- What this server authenticates with to agents elsewhere, by the id of a service. sealed can be opened with the key that
-- key_id names and with nothing that is in the database; kinds says in clear what is in it.
CREATE TABLE credential (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    key_id {text} NOT NULL,
    kinds TEXT NOT NULL,
    sealed {bytes} NOT NULL,
    created_at {int} NOT NULL,
    updated_at {int} NOT NULL,
    PRIMARY KEY (tenant, id)
) {strict};
CREATE INDEX credential_by_key ON credential (key_id, tenant, id);
{on_postgres} ALTER TABLE credential DROP CONSTRAINT credential_pkey, ADD PRIMARY KEY (tenant, id);

-- What an agent keeps of a conversation, by key: a session's id, a history. It goes with the conversation's last task.
CREATE TABLE context_state (
    tenant {text} NOT NULL,
    context_id {text} NOT NULL,
    agent {text} NOT NULL,
    owner {text} NOT NULL,
    key {text} NOT NULL,
    value TEXT NOT NULL,
    at {int} NOT NULL,
    PRIMARY KEY (tenant, context_id, agent, owner, key)
) {clustered};

-- A conversation with a graph, whose state is in checkpoints. task_id is the task that has it, or had it last.
CREATE TABLE thread (
    tenant {text} NOT NULL,
    id {text} NOT NULL,
    task_id {text} NOT NULL,
    PRIMARY KEY (tenant, id)
) {clustered};
CREATE INDEX thread_by_task ON thread (tenant, task_id);
{on_postgres} ALTER TABLE thread DROP CONSTRAINT thread_pkey, ADD PRIMARY KEY (tenant, id);

-- The state of a graph after a step, in the framework's own form. Ids rise with time. space is empty for the graph
-- itself and names the place of a graph within it. versions says what its channels hold: it is in checkpoint_value.
CREATE TABLE checkpoint (
    tenant {text} NOT NULL,
    thread {text} NOT NULL,
    space {text} NOT NULL,
    id {text} NOT NULL,
    parent {text},
    versions TEXT NOT NULL,
    format TEXT NOT NULL,
    data {bytes} NOT NULL,
    metadata_format TEXT NOT NULL,
    metadata {bytes} NOT NULL,
    PRIMARY KEY (tenant, thread, space, id)
) {strict};

-- What a channel of a graph held, by version: a step writes only what it has changed.
CREATE TABLE checkpoint_value (
    tenant {text} NOT NULL,
    thread {text} NOT NULL,
    space {text} NOT NULL,
    channel {text} NOT NULL,
    version {text} NOT NULL,
    format TEXT NOT NULL,
    data {bytes} NOT NULL,
    PRIMARY KEY (tenant, thread, space, channel, version)
) {strict};

-- What a node of a graph gave in a step that others have not finished yet; a step that goes on does not run it again.
CREATE TABLE checkpoint_write (
    tenant {text} NOT NULL,
    thread {text} NOT NULL,
    space {text} NOT NULL,
    checkpoint {text} NOT NULL,
    task {text} NOT NULL,
    position {int} NOT NULL,
    path {text} NOT NULL,
    channel TEXT NOT NULL,
    format TEXT NOT NULL,
    data {bytes} NOT NULL,
    PRIMARY KEY (tenant, thread, space, checkpoint, task, position)
) {strict};

-- A schedule of a served agent: up to when its times have been seen to. What came later, while nothing ran, was missed.
CREATE TABLE schedule (
    agent {text} NOT NULL,
    name {text} NOT NULL,
    seen_at {int} NOT NULL,
    PRIMARY KEY (agent, name)
) {clustered};

-- What the runs of a workflow have in common: the latest value of each key of a namespace, until it is too old.
CREATE TABLE shared_value (
    tenant {text} NOT NULL,
    owner {text} NOT NULL,
    namespace {text} NOT NULL,
    key {text} NOT NULL,
    value TEXT NOT NULL,
    at {int} NOT NULL,
    expires_at {int},
    PRIMARY KEY (tenant, owner, namespace, key)
) {clustered};
