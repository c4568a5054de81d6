-- Migration 1 for SQLite: the tables of messages and actors.
--
-- Instants are whole microseconds since 1970, UTC; `executions.lease_until` alone counts from the machine's boot. A payload is
-- a pair of columns: the bytes, and no size; or the digest under which the content store keeps them, and their size. Triggers
-- refuse every move that the state machines in Python do not have.

CREATE TABLE batches (
    batch_id TEXT NOT NULL PRIMARY KEY,
    at INTEGER NOT NULL,
    answers BLOB NOT NULL
) WITHOUT ROWID;

CREATE INDEX batches_by_age ON batches (at);

CREATE TABLE executions (
    execution_id TEXT NOT NULL PRIMARY KEY,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    locked INTEGER NOT NULL CHECK (locked IN (0, 1)),
    started_at INTEGER NOT NULL,
    lease_until INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('active', 'draining', 'ended')),
    ended_at INTEGER,
    CHECK ((state = 'ended') = (ended_at IS NOT NULL))
);

CREATE INDEX executions_in_work ON executions (state) WHERE state <> 'ended';

CREATE TRIGGER executions_moves BEFORE UPDATE OF state ON executions
WHEN NOT (OLD.state = NEW.state OR (OLD.state, NEW.state) IN (
    VALUES ('active', 'draining'), ('active', 'ended'), ('draining', 'ended')
))
BEGIN
    SELECT RAISE(ABORT, 'executions: no such move');
END;

CREATE TABLE addresses (
    address TEXT NOT NULL PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('mailbox', 'actor', 'task')),
    generation INTEGER NOT NULL,
    owner TEXT,
    capacity INTEGER,
    last_seq INTEGER NOT NULL DEFAULT 0,
    handled_seq INTEGER NOT NULL DEFAULT 0,
    settled_ahead INTEGER NOT NULL DEFAULT 0,
    queued INTEGER NOT NULL DEFAULT 0,
    ready INTEGER NOT NULL DEFAULT 0,
    delayed INTEGER NOT NULL DEFAULT 0,
    last_delayed INTEGER NOT NULL DEFAULT 0,
    held INTEGER NOT NULL DEFAULT 0,
    last_ordinal INTEGER NOT NULL DEFAULT 0,
    state BLOB,
    state_size INTEGER,
    state_type TEXT,
    state_version INTEGER,
    parked TEXT CHECK (parked IN ('diverged', 'incompatible', 'undecodable', 'crash_loop', 'oversize', 'unresolved')),
    parked_detail TEXT,
    due_at INTEGER,
    closed_at INTEGER,
    CHECK (min(last_seq - handled_seq, handled_seq, settled_ahead, queued, ready, delayed, held) >= 0),
    CHECK ((state IS NULL) = (state_type IS NULL)),
    CHECK ((state_type IS NULL) = (state_version IS NULL)),
    CHECK ((parked IS NULL) = (parked_detail IS NULL)),
    CHECK (owner IS NULL OR (generation > 0 AND parked IS NULL)),
    CHECK (due_at IS NULL OR (owner IS NULL AND parked IS NULL AND closed_at IS NULL))
);

CREATE INDEX addresses_due ON addresses (due_at, address) WHERE due_at IS NOT NULL AND kind <> 'task';
CREATE INDEX addresses_by_owner ON addresses (owner, address) WHERE owner IS NOT NULL;
CREATE INDEX addresses_parked ON addresses (parked) WHERE parked IS NOT NULL;
CREATE INDEX addresses_state_content ON addresses (state_size) WHERE state_size IS NOT NULL;

CREATE TABLE pools (
    pool TEXT NOT NULL PRIMARY KEY CHECK (pool <> ''),
    capacity INTEGER CHECK (capacity > 0),
    registered_at INTEGER NOT NULL
);

CREATE TABLE messages (
    address TEXT NOT NULL,
    seq INTEGER NOT NULL,
    message_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    body_size INTEGER,
    sender TEXT,
    timer TEXT,
    deliver_at INTEGER,
    -- No `IN`: it makes a table of its values for each row, which takes a third of an insert.
    status TEXT NOT NULL CHECK (
        status = 'queued' OR status = 'delayed' OR status = 'handled' OR status = 'dead' OR status = 'dropped'
    ),
    deliveries INTEGER NOT NULL DEFAULT 0,
    accepted_at INTEGER NOT NULL,
    delivered_at INTEGER,
    settled_at INTEGER,
    reply BLOB,
    reply_size INTEGER,
    error BLOB,
    error_size INTEGER,
    reason TEXT,
    PRIMARY KEY (address, seq),
    CHECK ((status = 'delayed') = (seq < 0)),
    CHECK ((status IN ('delayed', 'queued')) = (settled_at IS NULL)),
    CHECK (status = 'handled' OR reply IS NULL),
    CHECK (status <> 'dead' OR reason IS NOT NULL)
);

CREATE UNIQUE INDEX messages_by_id ON messages (message_id, address);
CREATE INDEX messages_delayed ON messages (deliver_at, address) WHERE status = 'delayed';
CREATE UNIQUE INDEX messages_timers ON messages (timer, address) WHERE status = 'delayed' AND timer IS NOT NULL;
CREATE INDEX messages_dead ON messages (status, address, seq) WHERE status = 'dead';
CREATE INDEX messages_body_content ON messages (body_size) WHERE body_size IS NOT NULL;
CREATE INDEX messages_reply_content ON messages (reply_size) WHERE reply_size IS NOT NULL;
CREATE INDEX messages_error_content ON messages (error_size) WHERE error_size IS NOT NULL;

CREATE TRIGGER messages_moves BEFORE UPDATE OF status ON messages
WHEN NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    VALUES ('delayed', 'queued'), ('queued', 'handled'), ('queued', 'dead'),
           ('dead', 'queued'), ('dead', 'dropped')
))
BEGIN
    SELECT RAISE(ABORT, 'messages: no such move');
END;

CREATE TABLE observations (
    id INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('refused', 'duplicate', 'conflict', 'late', 'unmatched')),
    what TEXT NOT NULL,
    address TEXT NOT NULL,
    message_id TEXT,
    sender TEXT,
    execution_id TEXT,
    generation INTEGER,
    detail TEXT NOT NULL,
    body BLOB,
    body_size INTEGER
);

CREATE INDEX observations_by_age ON observations (at);
CREATE INDEX observations_by_address ON observations (address, id);
CREATE INDEX observations_by_sender ON observations (sender, id);
CREATE INDEX observations_body_content ON observations (body_size) WHERE body_size IS NOT NULL;

CREATE TABLE callbacks (
    callback_id TEXT NOT NULL PRIMARY KEY CHECK (callback_id <> ''),
    address TEXT NOT NULL,
    secrets TEXT NOT NULL CHECK (secrets <> ''),
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    status TEXT NOT NULL CHECK (status IN ('open', 'answered', 'expired', 'cancelled')),
    settled_at INTEGER,
    answer BLOB,
    answer_size INTEGER,
    answer_digest TEXT,
    CHECK ((status = 'open') = (settled_at IS NULL)),
    CHECK ((status = 'answered') = (answer IS NOT NULL)),
    CHECK ((status = 'answered') = (answer_digest IS NOT NULL))
);

CREATE INDEX callbacks_expiring ON callbacks (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;
CREATE INDEX callbacks_settled ON callbacks (settled_at) WHERE status <> 'open';
CREATE INDEX callbacks_answer_content ON callbacks (answer_size) WHERE answer_size IS NOT NULL;

CREATE TRIGGER callbacks_moves BEFORE UPDATE OF status ON callbacks
WHEN NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    VALUES ('open', 'answered'), ('open', 'expired'), ('open', 'cancelled')
))
BEGIN
    SELECT RAISE(ABORT, 'callbacks: no such move');
END;

CREATE TABLE outbox (
    address TEXT NOT NULL,
    ordinal INTEGER NOT NULL,
    held INTEGER NOT NULL CHECK (held IN (0, 1)),
    destination TEXT NOT NULL,
    message_id TEXT NOT NULL,
    digest TEXT,
    type TEXT NOT NULL,
    body BLOB NOT NULL,
    body_size INTEGER,
    deliver_at INTEGER,
    status TEXT NOT NULL CHECK (status IN ('pending', 'sent', 'dead')),
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at INTEGER NOT NULL,
    settled_at INTEGER,
    PRIMARY KEY (address, ordinal),
    CHECK (held = (digest IS NOT NULL)),
    CHECK (NOT held OR status <> 'dead'),
    CHECK ((status = 'pending') = (settled_at IS NULL))
);

CREATE INDEX outbox_due ON outbox (destination, due_at) WHERE status = 'pending' AND NOT held;
CREATE INDEX outbox_held ON outbox (destination, address) WHERE status = 'pending' AND held;
CREATE INDEX outbox_settled ON outbox (settled_at) WHERE status = 'sent';
CREATE INDEX outbox_body_content ON outbox (body_size) WHERE body_size IS NOT NULL;

CREATE TRIGGER outbox_moves BEFORE UPDATE OF status ON outbox
WHEN NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    VALUES ('pending', 'sent'), ('pending', 'dead'), ('dead', 'pending')
))
BEGIN
    SELECT RAISE(ABORT, 'outbox: no such move');
END;

CREATE TABLE content (
    digest BLOB NOT NULL,
    chunk INTEGER NOT NULL CHECK (chunk >= 0),
    size INTEGER NOT NULL,
    kept_at INTEGER NOT NULL,
    bytes BLOB NOT NULL,
    PRIMARY KEY (digest, chunk)
);

CREATE INDEX content_by_age ON content (kept_at) WHERE chunk = 0;
