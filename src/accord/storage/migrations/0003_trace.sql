-- The trace that a task belongs to, as W3C writes it (traceparent, and tracestate after a space); null where nobody traces.
-- What is done for the task on any node, now or after a crash, goes on with it.
-- overlaps: 2
ALTER TABLE task ADD COLUMN trace TEXT;
