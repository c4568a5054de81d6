-- Messages come in at their addresses, many at once. `mail.receive` says the same for one.
--
-- With `p_batch` it is a whole transaction: it locks, and leaves the batch's row behind. Without it, both are its caller's.
-- Verdicts are dispositions, or 'full', and null when all were accepted; numbers are places, or the capacity. With `p_whole`
-- nothing is done, and the numbers are null, when one is 'full', 'duplicate' or 'conflict': what becomes of a handler's later
-- messages depends on that, one by one.
--
-- The recipients are `p_recipient`, each once, with the count of its messages; `p_at` tells which is a message's own, and `p_nth` which
-- of its messages it is. A null there stands for messages that have a recipient each. Usually all are new, are for now, and find
-- room: then no message has to be looked up, for the identities' index tells of one that is known.
CREATE FUNCTION {accept}(
    p_batch text, p_ids text[], p_now bigint, p_own text[],
    p_address text[], p_message text[], p_digest text[], p_type text[], p_body bytea[], p_size bigint[],
    p_sender text[], p_deliver bigint[], p_recipient text[], p_count bigint[], p_at bigint[], p_nth bigint[],
    p_whole boolean,
    OUT verdicts text[], OUT numbers bigint[], OUT woken text[], OUT news boolean
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_rows tid[];
    v_observe boolean := false;
    v_usual boolean := false;
    v_last bigint[];
BEGIN
    IF p_batch IS NOT NULL THEN
        PERFORM 1 FROM addresses a WHERE a.address = ANY (p_address) ORDER BY a.address FOR NO KEY UPDATE;
    END IF;
    v_now := coalesce(p_now, greenroom_now());

    IF p_deliver IS NULL THEN
        SELECT
            array_agg(a.place ORDER BY r.n),
            array_agg(a.last_seq ORDER BY r.n),
            bool_and(a.owner IS NOT NULL AND (a.queued + coalesce(r.count, 1) <= a.capacity) IS NOT FALSE),
            bool_or(a.owner <> ALL (p_own))
        INTO v_rows, v_last, v_usual, news
        FROM unnest(coalesce(p_recipient, p_address), p_count) WITH ORDINALITY r(address, count, n)
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.owner, x.capacity, x.queued, x.last_seq
            FROM addresses x WHERE x.address = r.address LIMIT 1
        ) a ON true;
    END IF;
    IF v_usual THEN
        SELECT array_agg(v_last[coalesce(i.at, i.n)] + coalesce(i.nth, 1) ORDER BY i.n) INTO numbers
        FROM unnest(p_address, p_at, p_nth) WITH ORDINALITY i(address, at, nth, n);
        BEGIN
            INSERT INTO messages (
                address, seq, message_id, digest, type, body, body_size, sender, status, accepted_at
            )
            SELECT i.address, i.seq, i.message, i.digest, i.type, i.body, i.size, i.sender, 'queued', v_now
            FROM unnest(p_address, numbers, p_message, p_digest, p_type, p_body, p_size, p_sender)
                i(address, seq, message, digest, type, body, size, sender);
        EXCEPTION WHEN unique_violation THEN
            v_usual := false;
        END;
    END IF;

    IF v_usual THEN
        UPDATE addresses a SET
            last_seq = a.last_seq + coalesce(r.count, 1),
            ready = a.ready + coalesce(r.count, 1),
            queued = a.queued + coalesce(r.count, 1)
        FROM unnest(v_rows, p_count) r(place, count) WHERE a.ctid = r.place;
        woken := coalesce(p_recipient, p_address);
    ELSE
        SELECT
            array_agg(d.verdict ORDER BY d.n),
            array_agg(
                CASE d.verdict
                    WHEN 'accepted' THEN CASE WHEN d.later THEN -d.last_delayed - d.nth ELSE d.last_seq + d.nth END
                    WHEN 'full' THEN d.capacity
                    WHEN 'duplicate' THEN d.old_seq
                END ORDER BY d.n
            ),
            array_agg(CASE WHEN d.verdict = 'accepted' THEN d.place END ORDER BY d.n),
            array_agg(DISTINCT d.address) FILTER (WHERE d.verdict = 'accepted' AND NOT d.later),
            coalesce(bool_or(d.verdict NOT IN ('accepted', 'full')), false),
            coalesce(bool_or(d.verdict = 'accepted' AND (d.owner IS NULL OR d.owner <> ALL (p_own))), false)
        INTO verdicts, numbers, v_rows, woken, v_observe, news
        FROM (
            -- Candidates that find room are the first ones of their address: the n-th that is accepted is the n-th of its kind.
            SELECT
                r.*,
                row_number() OVER (PARTITION BY r.address, r.verdict, r.later ORDER BY r.n) AS nth
            FROM (
                SELECT
                    c.*,
                    CASE
                        WHEN c.verdict <> 'new' THEN c.verdict
                        WHEN c.capacity IS NULL OR c.queued
                            + row_number() OVER (PARTITION BY c.address, c.verdict ORDER BY c.n) <= c.capacity
                            THEN 'accepted'
                        ELSE 'full'
                    END AS verdict
                FROM (
                    SELECT
                        i.n, i.address, coalesce(i.deliver > v_now, false) AS later,
                        a.place, a.owner, a.capacity, a.queued, a.last_seq, a.last_delayed, m.seq AS old_seq,
                        CASE
                            WHEN a.place IS NULL THEN 'unmatched'
                            WHEN m.seq IS NOT NULL AND m.digest = i.digest THEN 'duplicate'
                            WHEN m.seq IS NOT NULL THEN 'conflict'
                            WHEN a.closed_at IS NOT NULL THEN 'late'
                            ELSE 'new'
                        END AS verdict
                    FROM unnest(p_address, p_message, p_digest, p_deliver)
                        WITH ORDINALITY i(address, message, digest, deliver, n)
                    LEFT JOIN LATERAL (
                        SELECT
                            x.ctid AS place, x.owner, x.capacity, x.queued, x.last_seq, x.last_delayed, x.closed_at
                        FROM addresses x WHERE x.address = i.address LIMIT 1
                    ) a ON true
                    LEFT JOIN LATERAL (
                        SELECT x.seq, x.digest FROM messages x
                        WHERE x.message_id = i.message AND x.address = i.address LIMIT 1
                    ) m ON true
                ) c
            ) r(n, address, later, place, owner, capacity, queued, last_seq, last_delayed, old_seq, before, verdict)
        ) d;

        IF p_whole AND verdicts && ARRAY['full', 'duplicate', 'conflict'] THEN
            numbers := NULL;
            RETURN;
        END IF;

        INSERT INTO messages (
            address, seq, message_id, digest, type, body, body_size, sender, deliver_at, status, accepted_at
        )
        SELECT
            i.address, i.seq, i.message, i.digest, i.type, i.body, i.size, i.sender, i.deliver,
            CASE WHEN i.seq < 0 THEN 'delayed' ELSE 'queued' END, v_now
        FROM unnest(
            p_address, numbers, p_message, p_digest, p_type, p_body, p_size, p_sender, p_deliver, verdicts
        ) i(address, seq, message, digest, type, body, size, sender, deliver, verdict)
        WHERE i.verdict = 'accepted';

        UPDATE addresses a SET
            last_seq = a.last_seq + u.ready,
            ready = a.ready + u.ready,
            queued = a.queued + u.ready + u.delayed,
            delayed = a.delayed + u.delayed,
            last_delayed = a.last_delayed + u.delayed,
            due_at = CASE WHEN a.owner IS NULL AND a.parked IS NULL THEN least(a.due_at, u.due) ELSE a.due_at END
        FROM (
            SELECT
                i.place,
                count(*) FILTER (WHERE i.seq > 0) AS ready,
                count(*) FILTER (WHERE i.seq < 0) AS delayed,
                min(CASE WHEN i.seq > 0 THEN v_now ELSE i.deliver END) AS due
            FROM unnest(v_rows, numbers, p_deliver) i(place, seq, deliver)
            WHERE i.place IS NOT NULL
            GROUP BY i.place
        ) u
        WHERE a.ctid = u.place;
        IF 'accepted' = ALL (verdicts) THEN
            verdicts := NULL;
        END IF;
    END IF;

    IF v_observe THEN
        INSERT INTO observations (
            at, kind, what, address, message_id, sender, detail, body, body_size
        )
        SELECT
            v_now, i.verdict, i.type, i.address, i.message, i.sender,
            CASE i.verdict
                WHEN 'unmatched' THEN 'nothing has that address'
                WHEN 'duplicate' THEN 'that message was accepted before'
                WHEN 'conflict' THEN 'another message has that identity'
                ELSE 'the address''s actor has ended for good'
            END,
            CASE WHEN i.verdict <> 'duplicate' THEN i.body END,
            CASE WHEN i.verdict <> 'duplicate' THEN i.size END
        FROM unnest(p_address, p_message, p_type, p_body, p_size, p_sender, verdicts)
            WITH ORDINALITY i(address, message, type, body, size, sender, verdict, n)
        WHERE i.verdict NOT IN ('accepted', 'full')
        ORDER BY i.n;
    END IF;

    IF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind, keys, verdicts, numbers)
        VALUES (p_batch, v_now, p_ids, 'AcceptMessage', p_message, verdicts, numbers);
        IF news THEN
            PERFORM pg_notify('greenroom.' || current_schema(), pg_backend_pid()::text);
        END IF;
    END IF;
END
$function$;
