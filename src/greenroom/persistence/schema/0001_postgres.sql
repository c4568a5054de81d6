-- Migration 1 for PostgreSQL: the tables of messages and actors.
--
-- Instants are whole microseconds since 1970, UTC, by greenroom_now(). Identities are compared by code point (collate "C"),
-- which is the canonical order of locks. A payload is a pair of columns: the bytes, or the digest under which the content
-- store keeps them, and their size. Triggers refuse every move that the state machines in Python do not have.

CREATE FUNCTION greenroom_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;

CREATE FUNCTION greenroom_no_such_move() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION '%: no such move', TG_TABLE_NAME USING ERRCODE = 'check_violation'; END $$;

CREATE TABLE batches (
    batch_id text COLLATE "C" NOT NULL PRIMARY KEY,
    at bigint NOT NULL,
    transition_ids text[] NOT NULL,
    answers bytea,
    kind text,
    addresses text[],
    keys text[],
    verdicts text[],
    numbers bigint[],
    CHECK ((answers IS NULL) = (kind IS NOT NULL)),
    CHECK ((kind IS NULL) = (verdicts IS NULL))
);

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
    address text COLLATE "C" NOT NULL PRIMARY KEY CHECK (address <> ''),
    kind text NOT NULL CHECK (kind IN ('mailbox', 'actor')),
    generation bigint NOT NULL CHECK (generation >= 0),
    owner text COLLATE "C",
    capacity bigint CHECK (capacity > 0),
    last_seq bigint NOT NULL DEFAULT 0,
    handled_seq bigint NOT NULL DEFAULT 0,
    settled_ahead bigint NOT NULL DEFAULT 0 CHECK (settled_ahead >= 0),
    queued bigint NOT NULL DEFAULT 0 CHECK (queued >= 0),
    ready bigint NOT NULL DEFAULT 0 CHECK (ready >= 0),
    delayed bigint NOT NULL DEFAULT 0 CHECK (delayed >= 0),
    last_delayed bigint NOT NULL DEFAULT 0,
    held bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
    last_ordinal bigint NOT NULL DEFAULT 0,
    state bytea,
    state_content text COLLATE "C",
    state_size bigint,
    state_type text,
    state_version bigint,
    parked text CHECK (parked IN ('diverged', 'incompatible', 'undecodable', 'crash_loop', 'oversize', 'unresolved')),
    parked_detail text,
    due_at bigint,
    closed_at bigint,
    CHECK (0 <= handled_seq AND handled_seq <= last_seq),
    CHECK (state IS NULL OR state_content IS NULL),
    CHECK ((state_content IS NULL) = (state_size IS NULL)),
    CHECK ((state IS NULL AND state_content IS NULL) = (state_type IS NULL)),
    CHECK ((state_type IS NULL) = (state_version IS NULL)),
    CHECK ((parked IS NULL) = (parked_detail IS NULL)),
    CHECK (parked IS NULL OR owner IS NULL),
    CHECK (owner IS NULL OR generation > 0),
    CHECK (due_at IS NULL OR (owner IS NULL AND parked IS NULL AND closed_at IS NULL))
) WITH (fillfactor = 60);

CREATE INDEX addresses_due ON addresses (due_at, address) WHERE due_at IS NOT NULL;
CREATE INDEX addresses_by_owner ON addresses (owner, address) WHERE owner IS NOT NULL;
CREATE INDEX addresses_parked ON addresses (parked) WHERE parked IS NOT NULL;
CREATE INDEX addresses_content ON addresses (state_content) WHERE state_content IS NOT NULL;

CREATE TABLE pools (
    pool text COLLATE "C" NOT NULL PRIMARY KEY CHECK (pool <> ''),
    capacity bigint CHECK (capacity > 0),
    registered_at bigint NOT NULL
);

CREATE TABLE messages (
    address text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    message_id text COLLATE "C" NOT NULL CHECK (message_id <> ''),
    digest text COLLATE "C" NOT NULL,
    type text NOT NULL,
    body bytea,
    body_content text COLLATE "C",
    body_size bigint,
    sender text COLLATE "C",
    timer text COLLATE "C",
    deliver_at bigint,
    status text NOT NULL CHECK (status IN ('delayed', 'queued', 'handled', 'dead', 'dropped')),
    deliveries bigint NOT NULL DEFAULT 0 CHECK (deliveries >= 0),
    accepted_at bigint NOT NULL,
    delivered_at bigint,
    settled_at bigint,
    reply bytea,
    reply_content text COLLATE "C",
    reply_size bigint,
    error bytea,
    error_content text COLLATE "C",
    error_size bigint,
    reason text,
    PRIMARY KEY (address, seq),
    CHECK (seq <> 0),
    CHECK ((status = 'delayed') = (seq < 0)),
    CHECK (status <> 'delayed' OR deliver_at IS NOT NULL),
    CHECK ((status IN ('delayed', 'queued')) = (settled_at IS NULL)),
    CHECK ((body IS NULL) <> (body_content IS NULL)),
    CHECK ((body_content IS NULL) = (body_size IS NULL)),
    CHECK (reply IS NULL OR reply_content IS NULL),
    CHECK ((reply_content IS NULL) = (reply_size IS NULL)),
    CHECK (error IS NULL OR error_content IS NULL),
    CHECK ((error_content IS NULL) = (error_size IS NULL)),
    CHECK (status = 'handled' OR (reply IS NULL AND reply_content IS NULL)),
    CHECK (status <> 'dead' OR reason IS NOT NULL)
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX messages_by_id ON messages (message_id, address);
CREATE INDEX messages_delayed ON messages (deliver_at, address) WHERE status = 'delayed';
CREATE UNIQUE INDEX messages_timers ON messages (timer, address) WHERE status = 'delayed' AND timer IS NOT NULL;
CREATE INDEX messages_dead ON messages (status, address, seq) WHERE status = 'dead';
CREATE INDEX messages_body_content ON messages (body_content) WHERE body_content IS NOT NULL;
CREATE INDEX messages_reply_content ON messages (reply_content) WHERE reply_content IS NOT NULL;
CREATE INDEX messages_error_content ON messages (error_content) WHERE error_content IS NOT NULL;

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
    body_content text COLLATE "C",
    body_size bigint,
    CHECK (body IS NULL OR body_content IS NULL),
    CHECK ((body_content IS NULL) = (body_size IS NULL))
);

CREATE INDEX observations_by_age ON observations (at);
CREATE INDEX observations_by_address ON observations (address, id);
CREATE INDEX observations_by_sender ON observations (sender, id);
CREATE INDEX observations_content ON observations (body_content) WHERE body_content IS NOT NULL;

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
    answer_content text COLLATE "C",
    answer_size bigint,
    answer_digest text COLLATE "C",
    CHECK ((status = 'open') = (settled_at IS NULL)),
    CHECK (answer IS NULL OR answer_content IS NULL),
    CHECK ((answer_content IS NULL) = (answer_size IS NULL)),
    CHECK ((status = 'answered') = (answer IS NOT NULL OR answer_content IS NOT NULL)),
    CHECK ((status = 'answered') = (answer_digest IS NOT NULL))
);

CREATE INDEX callbacks_expiring ON callbacks (expires_at) WHERE status = 'open' AND expires_at IS NOT NULL;
CREATE INDEX callbacks_settled ON callbacks (settled_at) WHERE status <> 'open';
CREATE INDEX callbacks_content ON callbacks (answer_content) WHERE answer_content IS NOT NULL;

CREATE TRIGGER callbacks_moves BEFORE UPDATE OF status ON callbacks FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    ('open', 'answered'), ('open', 'expired'), ('open', 'cancelled')
)))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TABLE outbox (
    address text COLLATE "C" NOT NULL,
    ordinal bigint NOT NULL CHECK (ordinal > 0),
    held boolean NOT NULL,
    destination text COLLATE "C" NOT NULL CHECK (destination <> ''),
    message_id text COLLATE "C" NOT NULL CHECK (message_id <> ''),
    digest text COLLATE "C",
    type text NOT NULL,
    body bytea,
    body_content text COLLATE "C",
    body_size bigint,
    deliver_at bigint,
    status text NOT NULL CHECK (status IN ('pending', 'sent', 'dead')),
    attempts bigint NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    due_at bigint NOT NULL,
    settled_at bigint,
    PRIMARY KEY (address, ordinal),
    CHECK ((body IS NULL) <> (body_content IS NULL)),
    CHECK ((body_content IS NULL) = (body_size IS NULL)),
    CHECK (held = (digest IS NOT NULL)),
    CHECK (NOT held OR status <> 'dead'),
    CHECK ((status = 'pending') = (settled_at IS NULL))
);

CREATE INDEX outbox_due ON outbox (due_at) WHERE status = 'pending' AND NOT held;
CREATE INDEX outbox_held ON outbox (destination, address) WHERE status = 'pending' AND held;
CREATE INDEX outbox_settled ON outbox (settled_at) WHERE status = 'sent';
CREATE INDEX outbox_content ON outbox (body_content) WHERE body_content IS NOT NULL;

CREATE TRIGGER outbox_moves BEFORE UPDATE OF status ON outbox FOR EACH ROW
WHEN (NOT (OLD.status = NEW.status OR (OLD.status, NEW.status) IN (
    ('pending', 'sent'), ('pending', 'dead'), ('dead', 'pending')
)))
EXECUTE FUNCTION greenroom_no_such_move();

CREATE TABLE content (
    digest text COLLATE "C" NOT NULL,
    chunk bigint NOT NULL CHECK (chunk >= 0),
    kept_at bigint NOT NULL,
    bytes bytea NOT NULL,
    PRIMARY KEY (digest, chunk)
);

CREATE INDEX content_by_age ON content (kept_at) WHERE chunk = 0;
