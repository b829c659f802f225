-- Of each webhook: caller is the tenant and the owner of its task, host the host and port of its URL, address the URL
-- without its query. Deliveries are claimed in turn by caller, and lists show and search the address alone.
-- This overlaps with no earlier schema. Nodes of an earlier release count no heartbeats, so that others would take their
-- tasks from them while they live; those of before know no idempotency keys either, so that one key could begin two tasks.
ALTER TABLE push ADD COLUMN caller {text} NOT NULL DEFAULT '';
ALTER TABLE push ADD COLUMN host {text} NOT NULL DEFAULT '';
ALTER TABLE push ADD COLUMN address TEXT NOT NULL DEFAULT '';
{on_sqlite} UPDATE push SET address = substr(json_extract(config, '$.url'), 1, instr(json_extract(config, '$.url') || '?', '?') - 1);
{on_sqlite} UPDATE push SET host = lower(substr(address, instr(address, '://') + 3));
{on_sqlite} UPDATE push SET host = substr(host, 1, instr(host || '/', '/') - 1);
{on_postgres} UPDATE push SET address = split_part(config::json ->> 'url', '?', 1);
{on_postgres} UPDATE push SET host = lower(split_part(split_part(address, '://', 2), '/', 1));
{on_sqlite} UPDATE push SET caller = tenant || char(10) || (SELECT owner FROM task WHERE task.tenant = push.tenant AND task.id = push.task_id);
{on_postgres} UPDATE push SET caller = push.tenant || chr(10) || task.owner FROM task WHERE task.tenant = push.tenant AND task.id = push.task_id;
CREATE INDEX push_waiting ON push (caller, due_at) WHERE due_at IS NOT NULL AND node IS NULL;
DROP INDEX push_due;
-- How many heartbeats a node has sent: it is gone when others have not seen this move for a lease, whatever any clock says.
ALTER TABLE node ADD COLUMN beats {int} NOT NULL DEFAULT 0;
