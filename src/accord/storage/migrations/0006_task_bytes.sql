-- Bytes that a task stores: its first snapshot, the data of its events and its files; after compaction, its snapshot and files.
-- Null for tasks from before and of nodes of an earlier release: they count with their snapshot. No index has it, so that
-- appending a chunk still touches none.
-- overlaps: 5
ALTER TABLE task ADD COLUMN bytes {int};
