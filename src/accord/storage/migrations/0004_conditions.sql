-- The same indexes in words that cost less: SQLite fills a table with the list of an IN for every row it writes.
-- overlaps: 2
{on_sqlite} DROP INDEX task_ended;
{on_sqlite} CREATE INDEX task_ended ON task (updated_at) WHERE {ended};
{on_sqlite} DROP INDEX task_with_log;
{on_sqlite} CREATE INDEX task_with_log ON task (updated_at) WHERE {terminal} AND min_seq = 1;
{on_sqlite} DROP INDEX task_open;
{on_sqlite} CREATE INDEX task_open ON task (tenant, state, owner, updated_at, id) WHERE {open};
{on_sqlite} DROP INDEX task_amiss;
{on_sqlite} CREATE INDEX task_amiss ON task (tenant, state, owner, updated_at, id) WHERE {amiss};
