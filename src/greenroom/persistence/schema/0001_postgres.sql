-- Migration 1 for PostgreSQL: the tables of messages and actors.
--
-- Instants are whole microseconds since 1970, UTC, by greenroom_now(). Identities are compared by code point (collate "C"),
-- which is the canonical order of locks. A payload is a pair of columns: the bytes, and no size; or the digest under which the
-- content store keeps them, and their size. Triggers refuse every move that the state machines in Python do not have. Checks
-- are few: PostgreSQL prepares all of a table's anew for each statement that writes to it, which for one row costs more than
-- the rest.

CREATE FUNCTION greenroom_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE FUNCTION greenroom_no_such_move() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '%: no such move', TG_TABLE_NAME USING ERRCODE = 'check_violation'; END $$;

-- A batch's answers as bytes, or by item what the answers of a hot kind are made of. Read when something has gone wrong, and
-- large: compressing it would take longer than writing it.
CREATE TABLE batches (
    batch_id text COLLATE "C" NOT NULL PRIMARY KEY,
    at bigint NOT NULL,
    transition_ids text[] NOT NULL,
    answers bytea,
    kind text,
    keys text[],
    verdicts text[],
    numbers bigint[],
    CHECK ((answers IS NULL) = (kind IS NOT NULL))
);

ALTER TABLE batches
    ALTER transition_ids SET STORAGE EXTERNAL,
    ALTER keys SET STORAGE EXTERNAL,
    ALTER verdicts SET STORAGE EXTERNAL,
    ALTER numbers SET STORAGE EXTERNAL;

CREATE INDEX batches_by_age ON batches (at);

CREATE TABLE executions (
    execution_id text COLLATE "C" NOT NULL PRIMARY KEY,
    host text NOT NULL,
    pid bigint NOT NULL,
    boot_id text NOT NULL,
    locked boolean NOT NULL,
    started_at bigint NOT NULL,
    lease_until bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'draining', 'ended')),
    ended_at bigint,
    CHECK ((state = 'ended') = (ended_at IS NOT NULL))
);

CREATE INDEX executions_in_work ON executions (state) WHERE state <> 'ended';

CREATE TRIGGER executions_moves BEFORE UPDATE OF state ON executions FOR EACH ROW
WHEN (NOT (OLD.state = NEW.state OR (OLD.state, NEW.state) IN (
    ('active', 'draining'), ('active', 'ended'), ('draining', 'ended')
)))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TABLE addresses (
    address text COLLATE "C" NOT NULL PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('mailbox', 'actor', 'task')),
    generation bigint NOT NULL,
    owner text COLLATE "C",
    capacity bigint,
    last_seq bigint NOT NULL DEFAULT 0,
    handled_seq bigint NOT NULL DEFAULT 0,
    settled_ahead bigint NOT NULL DEFAULT 0,
    queued bigint NOT NULL DEFAULT 0,
    ready bigint NOT NULL DEFAULT 0,
    delayed bigint NOT NULL DEFAULT 0,
    last_delayed bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0,
    last_ordinal bigint NOT NULL DEFAULT 0,
    state bytea,
    state_size bigint,
    state_type text,
    state_version bigint,
    parked text CHECK (parked IN ('diverged', 'incompatible', 'undecodable', 'crash_loop', 'oversize', 'unresolved')),
    parked_detail text,
    due_at bigint,
    closed_at bigint,
    CHECK (least(last_seq - handled_seq, handled_seq, settled_ahead, queued, ready, delayed, held) >= 0),
    CHECK ((state IS NULL) = (state_type IS NULL)),
    CHECK ((state_type IS NULL) = (state_version IS NULL)),
    CHECK ((parked IS NULL) = (parked_detail IS NULL)),
    CHECK (owner IS NULL OR (generation > 0 AND parked IS NULL)),
    CHECK (due_at IS NULL OR (owner IS NULL AND parked IS NULL AND closed_at IS NULL))
) WITH (fillfactor = 60);

CREATE INDEX addresses_due ON addresses (due_at, address) WHERE due_at IS NOT NULL AND kind <> 'task';
CREATE INDEX addresses_by_owner ON addresses (owner, address) WHERE owner IS NOT NULL;
CREATE INDEX addresses_parked ON addresses (parked) WHERE parked IS NOT NULL;
CREATE INDEX addresses_state_content ON addresses (state_size) WHERE state_size IS NOT NULL;

CREATE TABLE pools (
    pool text COLLATE "C" NOT NULL PRIMARY KEY CHECK (pool <> ''),
    capacity bigint CHECK (capacity > 0),
    registered_at bigint NOT NULL
);

CREATE TABLE messages (
    address text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    type text NOT NULL,
    body bytea NOT NULL,
    body_size bigint,
    sender text COLLATE "C",
    timer text COLLATE "C",
    deliver_at bigint,
    status text NOT NULL CHECK (status IN ('delayed', 'queued', 'handled', 'dead', 'dropped')),
    deliveries bigint NOT NULL DEFAULT 0,
    accepted_at bigint NOT NULL,
    delivered_at bigint,
    settled_at bigint,
    reply bytea,
    reply_size bigint,
    error bytea,
    error_size bigint,
    reason text,
    PRIMARY KEY (address, seq),
    CHECK ((status = 'delayed') = (seq < 0)),
    CHECK ((status IN ('delayed', 'queued')) = (settled_at IS NULL)),
    CHECK (status = 'handled' OR reply IS NULL),
    CHECK (status <> 'dead' OR reason IS NOT NULL)
-- Nearly every message is changed once, when its delivery is begun: room for that in its page leaves the indexes as they are.
) WITH (fillfactor = 50);

CREATE UNIQUE INDEX messages_by_id ON messages (message_id, address);
CREATE INDEX messages_delayed ON messages (deliver_at, address) WHERE status = 'delayed';
CREATE UNIQUE INDEX messages_timers ON messages (timer, address) WHERE status = 'delayed' AND timer IS NOT NULL;
CREATE INDEX messages_dead ON messages (status, address, seq) WHERE status = 'dead';
CREATE INDEX messages_body_content ON messages (body_size) WHERE body_size IS NOT NULL;
CREATE INDEX messages_reply_content ON messages (reply_size) WHERE reply_size IS NOT NULL;
CREATE INDEX messages_error_content ON messages (error_size) WHERE error_size IS NOT NULL;

CREATE TRIGGER messages_moves BEFORE UPDATE OF status ON messages FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    ('delayed', 'queued'), ('queued', 'handled'), ('queued', 'dead'), ('dead', 'queued'), ('dead', 'dropped')
)))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TABLE observations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('refused', 'duplicate', 'conflict', 'late', 'unmatched')),
    what text NOT NULL,
    address text COLLATE "C" NOT NULL,
    message_id text COLLATE "C",
    sender text COLLATE "C",
    execution_id text COLLATE "C",
    generation bigint,
    detail text NOT NULL,
    body bytea,
    body_size bigint
);

CREATE INDEX observations_by_age ON observations (at);
CREATE INDEX observations_by_address ON observations (address, id);
CREATE INDEX observations_by_sender ON observations (sender, id);
CREATE INDEX observations_body_content ON observations (body_size) WHERE body_size IS NOT NULL;

CREATE TABLE callbacks (
    callback_id text COLLATE "C" NOT NULL PRIMARY KEY CHECK (callback_id <> ''),
    address text COLLATE "C" NOT NULL,
    secrets text NOT NULL CHECK (secrets <> ''),
    name text NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    status text NOT NULL CHECK (status IN ('open', 'answered', 'expired', 'cancelled')),
    settled_at bigint,
    answer bytea,
    answer_size bigint,
    answer_digest text COLLATE "C",
    CHECK ((status = 'open') = (settled_at IS NULL)),
    CHECK ((status = 'answered') = (answer IS NOT NULL)),
    CHECK ((status = 'answered') = (answer_digest IS NOT NULL))
);

CREATE INDEX callbacks_expiring ON callbacks (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;
CREATE INDEX callbacks_settled ON callbacks (settled_at) WHERE status <> 'open';
CREATE INDEX callbacks_answer_content ON callbacks (answer_size) WHERE answer_size IS NOT NULL;

CREATE TRIGGER callbacks_moves BEFORE UPDATE OF status ON callbacks FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    ('open', 'answered'), ('open', 'expired'), ('open', 'cancelled')
)))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TABLE outbox (
    address text COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL,
    held boolean NOT NULL,
    destination text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    digest text COLLATE "C",
    type text NOT NULL,
    body bytea NOT NULL,
    body_size bigint,
    deliver_at bigint,
    status text NOT NULL CHECK (status IN ('pending', 'sent', 'dead')),
    attempts bigint NOT NULL DEFAULT 0,
    due_at bigint NOT NULL,
    settled_at bigint,
    PRIMARY KEY (address, ordinal),
    CHECK (held = (digest IS NOT NULL)),
    CHECK (NOT held OR status <> 'dead'),
    CHECK ((status = 'pending') = (settled_at IS NULL))
);

CREATE INDEX outbox_due ON outbox (destination, due_at) WHERE status = 'pending' AND NOT held;
CREATE INDEX outbox_held ON outbox (destination, address) WHERE status = 'pending' AND held;
CREATE INDEX outbox_settled ON outbox (settled_at) WHERE status = 'sent';
CREATE INDEX outbox_body_content ON outbox (body_size) WHERE body_size IS NOT NULL;

CREATE TRIGGER outbox_moves BEFORE UPDATE OF status ON outbox FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    ('pending', 'sent'), ('pending', 'dead'), ('dead', 'pending')
)))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TABLE content (
    digest bytea NOT NULL,
    chunk bigint NOT NULL CHECK (chunk >= 0),
    size bigint NOT NULL,
    kept_at bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (digest, chunk)
);

CREATE INDEX content_by_age ON content (kept_at) WHERE chunk = 0;
