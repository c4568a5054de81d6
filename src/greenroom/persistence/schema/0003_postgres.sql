-- Migration 3 for PostgreSQL: limits of pools that hold for all processes, and schedules.
--
-- A task has a place while it is owned, in a pool that limits how many of one group may have one. The begins of a pool's tasks
-- are numbered; of them those are kept that may still hold back the next.

ALTER TABLE task_pools ADD COLUMN per_group bigint CHECK (per_group > 0);
ALTER TABLE task_pools ADD COLUMN rate_count bigint CHECK (rate_count > 0);
ALTER TABLE task_pools ADD COLUMN rate_period bigint CHECK (rate_period > 0);
ALTER TABLE task_pools ADD COLUMN begun bigint NOT NULL DEFAULT 0;

ALTER TABLE tasks ADD COLUMN placed boolean NOT NULL DEFAULT false;

CREATE INDEX tasks_placed ON tasks (pool, group_key) WHERE placed;
CREATE INDEX tasks_begun ON tasks (pool, priority DESC, turn, address) WHERE runnable AND version IS NOT NULL;

CREATE TABLE task_begins (
    pool text COLLATE "C" NOT NULL,
    number bigint NOT NULL CHECK (number > 0),
    at bigint NOT NULL,
    PRIMARY KEY (pool, number)
);

CREATE TABLE schedules (
    schedule text COLLATE "C" NOT NULL PRIMARY KEY CHECK (schedule <> ''),
    passed_at bigint NOT NULL,
    address text COLLATE "C",
    registered_at bigint NOT NULL
);
