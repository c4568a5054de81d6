-- Migration 2 for PostgreSQL: the tables of tasks.
--
-- A task is an address of kind 'task', with a row in `tasks`. Whether it may run, the two say together; `tasks.runnable` is for
-- those that stand in their pool's queue, and `task_pools.runnable` counts them. The number and time of a segment's last row
-- are read from the journal. Triggers refuse every move that the state machines in Python do not have.

CREATE TABLE task_pools (
    pool text COLLATE "C" NOT NULL PRIMARY KEY CHECK (pool <> ''),
    queue_limit bigint CHECK (queue_limit > 0),
    runnable bigint NOT NULL DEFAULT 0 CHECK (runnable >= 0),
    turn bigint NOT NULL DEFAULT 0,
    registered_at bigint NOT NULL
);

CREATE TABLE task_groups (
    pool text COLLATE "C" NOT NULL,
    group_key text COLLATE "C" NOT NULL,
    turn bigint NOT NULL,
    PRIMARY KEY (pool, group_key)
);

CREATE TABLE task_servers (
    pool text COLLATE "C" NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (pool, execution_id)
);

CREATE TABLE tasks (
    address text COLLATE "C" NOT NULL PRIMARY KEY,
    pool text COLLATE "C" NOT NULL,
    group_key text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    turn bigint NOT NULL,
    runnable boolean NOT NULL,
    request bytea NOT NULL,
    request_size bigint,
    request_type text NOT NULL,
    request_digest text COLLATE "C" NOT NULL,
    submitted_at bigint NOT NULL,
    deadline bigint,
    parent text COLLATE "C",
    parent_policy text NOT NULL,
    attempt bigint NOT NULL DEFAULT 1,
    attempt_at bigint NOT NULL,
    attempt_reason text,
    seed bytea NOT NULL,
    version text,
    segment bigint NOT NULL DEFAULT 1,
    segment_at bigint NOT NULL,
    segment_request bytea,
    segment_request_size bigint,
    segment_request_type text,
    state_version bigint NOT NULL DEFAULT 0,
    next_due bigint,
    phase text,
    waits text NOT NULL DEFAULT '[]',
    contact_at bigint,
    restarts text NOT NULL DEFAULT '[]',
    suspicions bigint NOT NULL DEFAULT 0,
    outcome text CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'unresolved')),
    result bytea,
    result_size bigint,
    error bytea,
    error_size bigint,
    end_reason text,
    ended_at bigint,
    CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CHECK (outcome IS NULL OR NOT runnable),
    CHECK (result IS NULL OR coalesce(outcome, '') = 'succeeded')
) WITH (fillfactor = 70);

CREATE INDEX tasks_runnable ON tasks (pool, priority DESC, turn, address) WHERE runnable;
CREATE INDEX tasks_by_pool ON tasks (pool, address);
CREATE INDEX tasks_by_parent ON tasks (parent, address) WHERE parent IS NOT NULL AND outcome IS NULL;
CREATE INDEX tasks_open ON tasks (address) WHERE outcome IS NULL;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_request_content ON tasks (request_size) WHERE request_size IS NOT NULL;
CREATE INDEX tasks_segment_content ON tasks (segment_request_size) WHERE segment_request_size IS NOT NULL;
CREATE INDEX tasks_result_content ON tasks (result_size) WHERE result_size IS NOT NULL;
CREATE INDEX tasks_error_content ON tasks (error_size) WHERE error_size IS NOT NULL;

CREATE TRIGGER tasks_moves BEFORE UPDATE OF outcome, attempt ON tasks FOR EACH ROW
WHEN (NEW.attempt < OLD.attempt
    OR (OLD.outcome IS NOT NULL AND NEW.outcome IS DISTINCT FROM OLD.outcome
        AND NOT (NEW.outcome IS NULL AND NEW.attempt = OLD.attempt + 1))
    OR (NEW.attempt > OLD.attempt AND OLD.outcome IS NULL))
EXECUTE FUNCTION greenroom_no_such_move();

-- A task stays a task, and nobody owns one that has ended.
CREATE FUNCTION greenroom_owned_task() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
    IF EXISTS (SELECT 1 FROM tasks t WHERE t.address = NEW.address AND t.outcome IS NOT NULL) THEN
        RAISE EXCEPTION '%: no such move', TG_TABLE_NAME USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER addresses_moves BEFORE UPDATE OF kind ON addresses FOR EACH ROW
WHEN ((OLD.kind = 'task') <> (NEW.kind = 'task'))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TRIGGER addresses_owned_tasks BEFORE UPDATE OF owner ON addresses FOR EACH ROW
WHEN (NEW.kind = 'task' AND NEW.owner IS NOT NULL AND NEW.owner IS DISTINCT FROM OLD.owner)
EXECUTE FUNCTION greenroom_owned_task();

CREATE INDEX addresses_due_tasks ON addresses (due_at, address) WHERE due_at IS NOT NULL AND kind = 'task';

-- Attempts that were followed by another. The last one stands with its task.
CREATE TABLE attempts (
    address text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL CHECK (attempt > 0),
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'unresolved')),
    reason text,
    result bytea,
    result_size bigint,
    error bytea,
    error_size bigint,
    PRIMARY KEY (address, attempt)
);

CREATE INDEX attempts_result_content ON attempts (result_size) WHERE result_size IS NOT NULL;
CREATE INDEX attempts_error_content ON attempts (error_size) WHERE error_size IS NOT NULL;

CREATE TABLE journal (
    address text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    segment bigint NOT NULL,
    seq bigint NOT NULL,
    at bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('outcome', 'signal', 'time', 'control')),
    call text COLLATE "C",
    name text,
    status text,
    version bigint,
    effect_possible boolean NOT NULL,
    unresolved boolean NOT NULL,
    params bytea,
    params_size bigint,
    body bytea,
    body_size bigint,
    admitted bigint,
    basis bigint,
    digest bytea,
    marks text,
    message_id text COLLATE "C",
    type text,
    answers text COLLATE "C",
    failed boolean NOT NULL,
    execution_id text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    PRIMARY KEY (address, attempt, segment, seq)
);

CREATE UNIQUE INDEX journal_outcomes ON journal (call, address, attempt, segment) WHERE kind = 'outcome';
CREATE INDEX journal_params_content ON journal (params_size) WHERE params_size IS NOT NULL;
CREATE INDEX journal_body_content ON journal (body_size) WHERE body_size IS NOT NULL;

CREATE TABLE operations (
    address text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    segment bigint NOT NULL,
    call text COLLATE "C" NOT NULL,
    intended_at bigint NOT NULL,
    name text NOT NULL,
    effect text NOT NULL CHECK (effect IN ('safe', 'keyed', 'reconciled', 'once')),
    key text COLLATE "C" NOT NULL,
    params bytea NOT NULL,
    params_size bigint,
    params_digest text COLLATE "C" NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'settled', 'unresolved')),
    version bigint NOT NULL CHECK (version >= 0),
    decision text CHECK (decision IN ('repeat', 'succeeded', 'failed')),
    result bytea,
    result_size bigint,
    decided_by text,
    decided_at bigint,
    PRIMARY KEY (address, attempt, segment, call),
    CHECK ((decision IS NULL) = (decided_at IS NULL)),
    CHECK ((decision IS NULL) = (decided_by IS NULL)),
    CHECK (result IS NULL OR coalesce(decision, '') = 'succeeded')
);

CREATE INDEX operations_unresolved ON operations (status, address) WHERE status = 'unresolved';
CREATE INDEX operations_params_content ON operations (params_size) WHERE params_size IS NOT NULL;
CREATE INDEX operations_result_content ON operations (result_size) WHERE result_size IS NOT NULL;

CREATE TRIGGER operations_moves BEFORE UPDATE OF status ON operations FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    ('pending', 'settled'), ('pending', 'unresolved'), ('unresolved', 'settled'), ('unresolved', 'pending')
)))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TABLE invocations (
    address text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    segment bigint NOT NULL,
    call text COLLATE "C" NOT NULL,
    invocation bigint NOT NULL CHECK (invocation > 0),
    execution_id text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    started_at bigint NOT NULL,
    ended_at bigint,
    status text,
    error text,
    links text NOT NULL DEFAULT '[]',
    PRIMARY KEY (address, attempt, segment, call, invocation),
    CHECK ((status IS NULL) = (ended_at IS NULL))
);

-- The answer of a task's callback that has not got into its mailbox yet.
ALTER TABLE callbacks ADD COLUMN undelivered boolean NOT NULL DEFAULT false;

CREATE INDEX callbacks_undelivered ON callbacks (settled_at) WHERE undelivered;
CREATE INDEX callbacks_open ON callbacks (address) WHERE status = 'open';
