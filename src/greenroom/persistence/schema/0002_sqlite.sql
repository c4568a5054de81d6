-- Migration 2 for SQLite: the tables of tasks.
--
-- A task is an address of kind 'task', with a row in `tasks`. Whether it may run, the two say together; `tasks.runnable` is for
-- those that stand in their pool's queue, and `task_pools.runnable` counts them. The number and time of a segment's last row
-- are read from the journal. Triggers refuse every move that the state machines in Python do not have.

CREATE TABLE task_pools (
    pool TEXT NOT NULL PRIMARY KEY CHECK (pool <> ''),
    queue_limit INTEGER CHECK (queue_limit > 0),
    runnable INTEGER NOT NULL DEFAULT 0 CHECK (runnable >= 0),
    turn INTEGER NOT NULL DEFAULT 0,
    registered_at INTEGER NOT NULL
);

CREATE TABLE task_groups (
    pool TEXT NOT NULL,
    group_key TEXT NOT NULL,
    turn INTEGER NOT NULL,
    PRIMARY KEY (pool, group_key)
);

CREATE TABLE task_servers (
    pool TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    PRIMARY KEY (pool, execution_id)
);

CREATE TABLE tasks (
    address TEXT NOT NULL PRIMARY KEY CHECK (address LIKE 'task:_%'),
    pool TEXT NOT NULL,
    group_key TEXT NOT NULL,
    priority INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    runnable INTEGER NOT NULL CHECK (runnable IN (0, 1)),
    request BLOB NOT NULL,
    request_size INTEGER,
    request_type TEXT NOT NULL,
    request_digest TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    deadline INTEGER,
    parent TEXT,
    parent_policy TEXT NOT NULL CHECK (parent_policy IN ('stop', 'detach')),
    attempt INTEGER NOT NULL DEFAULT 1 CHECK (attempt > 0),
    attempt_at INTEGER NOT NULL,
    attempt_reason TEXT,
    seed BLOB NOT NULL,
    version TEXT,
    segment INTEGER NOT NULL DEFAULT 1 CHECK (segment > 0),
    segment_at INTEGER NOT NULL,
    segment_request BLOB,
    segment_request_size INTEGER,
    segment_request_type TEXT,
    state_version INTEGER NOT NULL DEFAULT 0,
    next_due INTEGER,
    phase TEXT,
    waits TEXT NOT NULL DEFAULT '[]',
    contact_at INTEGER,
    restarts TEXT NOT NULL DEFAULT '[]',
    suspicions INTEGER NOT NULL DEFAULT 0 CHECK (suspicions >= 0),
    outcome TEXT CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'unresolved')),
    result BLOB,
    result_size INTEGER,
    error BLOB,
    error_size INTEGER,
    end_reason TEXT,
    ended_at INTEGER,
    CHECK ((segment_request IS NULL) = (segment_request_type IS NULL)),
    CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CHECK (outcome IS NULL OR NOT runnable),
    CHECK (result IS NULL OR coalesce(outcome, '') = 'succeeded')
);

CREATE INDEX tasks_runnable ON tasks (pool, priority DESC, turn, address) WHERE runnable;
CREATE INDEX tasks_by_pool ON tasks (pool, address);
CREATE INDEX tasks_by_parent ON tasks (parent, address) WHERE parent IS NOT NULL AND outcome IS NULL;
CREATE INDEX tasks_open ON tasks (address) WHERE outcome IS NULL;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_request_content ON tasks (request_size) WHERE request_size IS NOT NULL;
CREATE INDEX tasks_segment_content ON tasks (segment_request_size) WHERE segment_request_size IS NOT NULL;
CREATE INDEX tasks_result_content ON tasks (result_size) WHERE result_size IS NOT NULL;
CREATE INDEX tasks_error_content ON tasks (error_size) WHERE error_size IS NOT NULL;

CREATE TRIGGER tasks_moves BEFORE UPDATE OF outcome, attempt ON tasks
WHEN NEW.attempt < OLD.attempt
    OR (OLD.outcome IS NOT NULL AND NEW.outcome IS NOT OLD.outcome
        AND NOT (NEW.outcome IS NULL AND NEW.attempt = OLD.attempt + 1))
    OR (NEW.attempt > OLD.attempt AND OLD.outcome IS NULL)
BEGIN
    SELECT RAISE(ABORT, 'tasks: no such move');
END;

-- A task stays a task, and nobody owns one that has ended.
CREATE TRIGGER addresses_moves BEFORE UPDATE OF kind, owner ON addresses
WHEN (OLD.kind = 'task') <> (NEW.kind = 'task')
    OR (NEW.kind = 'task' AND NEW.owner IS NOT NULL
        AND EXISTS (SELECT 1 FROM tasks WHERE address = NEW.address AND outcome IS NOT NULL))
BEGIN
    SELECT RAISE(ABORT, 'addresses: no such move');
END;

CREATE INDEX addresses_due_tasks ON addresses (due_at, address) WHERE due_at IS NOT NULL AND kind = 'task';

-- Attempts that were followed by another. The last one stands with its task.
CREATE TABLE attempts (
    address TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'unresolved')),
    reason TEXT,
    result BLOB,
    result_size INTEGER,
    error BLOB,
    error_size INTEGER,
    PRIMARY KEY (address, attempt)
);

CREATE INDEX attempts_result_content ON attempts (result_size) WHERE result_size IS NOT NULL;
CREATE INDEX attempts_error_content ON attempts (error_size) WHERE error_size IS NOT NULL;

CREATE TABLE journal (
    address TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    seq INTEGER NOT NULL CHECK (seq > 0),
    at INTEGER NOT NULL,
    -- No `IN` with many values: it makes a table of them for each row, which takes a third of an insert.
    kind TEXT NOT NULL CHECK (kind = 'outcome' OR kind = 'signal' OR kind = 'time' OR kind = 'control'),
    call TEXT,
    name TEXT,
    status TEXT CHECK (status = 'succeeded' OR status = 'failed' OR status = 'cancelled'),
    version INTEGER,
    effect_possible INTEGER NOT NULL,
    unresolved INTEGER NOT NULL,
    params BLOB,
    params_size INTEGER,
    body BLOB,
    body_size INTEGER,
    admitted INTEGER,
    basis INTEGER,
    digest BLOB,
    marks TEXT,
    message_id TEXT,
    type TEXT,
    answers TEXT,
    failed INTEGER NOT NULL,
    execution_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    PRIMARY KEY (address, attempt, segment, seq),
    CHECK ((kind = 'outcome') = (status IS NOT NULL)),
    CHECK ((kind IN ('outcome', 'time')) = (call IS NOT NULL)),
    CHECK ((kind IN ('signal', 'control')) = (message_id IS NOT NULL))
);

CREATE UNIQUE INDEX journal_outcomes ON journal (call, address, attempt, segment) WHERE kind = 'outcome';
CREATE INDEX journal_params_content ON journal (params_size) WHERE params_size IS NOT NULL;
CREATE INDEX journal_body_content ON journal (body_size) WHERE body_size IS NOT NULL;

CREATE TABLE operations (
    address TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    call TEXT NOT NULL,
    intended_at INTEGER NOT NULL,
    name TEXT NOT NULL,
    effect TEXT NOT NULL CHECK (effect IN ('safe', 'keyed', 'reconciled', 'once')),
    key TEXT NOT NULL,
    params BLOB NOT NULL,
    params_size INTEGER,
    params_digest TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'settled', 'unresolved')),
    version INTEGER NOT NULL CHECK (version >= 0),
    decision TEXT CHECK (decision IN ('repeat', 'succeeded', 'failed')),
    result BLOB,
    result_size INTEGER,
    decided_by TEXT,
    decided_at INTEGER,
    PRIMARY KEY (address, attempt, segment, call),
    CHECK ((decision IS NULL) = (decided_at IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (result IS NULL OR coalesce(decision, '') = 'succeeded')
);

CREATE INDEX operations_unresolved ON operations (status, address) WHERE status = 'unresolved';
CREATE INDEX operations_params_content ON operations (params_size) WHERE params_size IS NOT NULL;
CREATE INDEX operations_result_content ON operations (result_size) WHERE result_size IS NOT NULL;

CREATE TRIGGER operations_moves BEFORE UPDATE OF status ON operations
WHEN NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    VALUES ('pending', 'settled'), ('pending', 'unresolved'), ('unresolved', 'settled'), ('unresolved', 'pending')
))
BEGIN
    SELECT RAISE(ABORT, 'operations: no such move');
END;

CREATE TABLE invocations (
    address TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    call TEXT NOT NULL,
    invocation INTEGER NOT NULL CHECK (invocation > 0),
    execution_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    status TEXT,
    error TEXT,
    links TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (address, attempt, segment, call, invocation),
    CHECK ((status IS NULL) = (ended_at IS NULL))
);

-- The answer of a task's callback that has not got into its mailbox yet.
ALTER TABLE callbacks ADD COLUMN undelivered INTEGER NOT NULL DEFAULT 0;

CREATE INDEX callbacks_undelivered ON callbacks (settled_at) WHERE undelivered;
CREATE INDEX callbacks_open ON callbacks (address) WHERE status = 'open';
