-- Migration 3 for SQLite: limits of pools that hold for all processes, and schedules.
--
-- A task has a place while it is owned, in a pool that limits how many of one group may have one. The begins of a pool's tasks
-- are numbered; of them those are kept that may still hold back the next.

ALTER TABLE task_pools ADD COLUMN per_group INTEGER CHECK (per_group > 0);
ALTER TABLE task_pools ADD COLUMN rate_count INTEGER CHECK (rate_count > 0);
ALTER TABLE task_pools ADD COLUMN rate_period INTEGER CHECK (rate_period > 0);
ALTER TABLE task_pools ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;

ALTER TABLE tasks ADD COLUMN placed INTEGER NOT NULL DEFAULT 0 CHECK (placed IN (0, 1));

CREATE INDEX tasks_placed ON tasks (pool, group_key) WHERE placed;
CREATE INDEX tasks_begun ON tasks (pool, priority DESC, turn, address) WHERE runnable AND version IS NOT NULL;

CREATE TABLE task_begins (
    pool TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    at INTEGER NOT NULL,
    PRIMARY KEY (pool, number)
);

CREATE TABLE schedules (
    schedule TEXT NOT NULL PRIMARY KEY CHECK (schedule <> ''),
    passed_at INTEGER NOT NULL,
    address TEXT,
    registered_at INTEGER NOT NULL
);
