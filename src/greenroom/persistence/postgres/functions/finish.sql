-- Messages have been handled by one execution, many at once, each at an address of its own; new states, and the next deliveries,
-- with them. `deliveries.finish` says the same for one, and for those that send something.
--
-- Only what goes its ordinary way is done: the first unhandled message of its mailbox, in its owner's hand. A number counts the
-- deliveries of the next message, where that was begun too, or is 0; it is null for what was left as it was. Arrays of what no
-- item has are null. With `p_batch` it is a whole transaction, and does everything or, with numbers that are null, nothing.
CREATE FUNCTION {finish}(
    p_batch text, p_ids text[], p_now bigint,
    p_execution text, p_address text[], p_generation bigint[], p_seq bigint[],
    p_reply bytea[], p_reply_size bigint[], p_error bytea[], p_error_size bigint[],
    p_state bytea[], p_state_size bigint[], p_state_type text[], p_state_version bigint[],
    p_next bigint[], p_most bigint[],
    OUT numbers bigint[]
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_lasts boolean;
    v_addresses tid[];
    v_messages tid[];
    v_counts boolean[];
    v_next tid[];
    v_answered boolean := p_reply IS NOT NULL OR p_error IS NOT NULL;
BEGIN
    IF p_batch IS NOT NULL THEN
        PERFORM 1 FROM addresses a WHERE a.address = ANY (p_address) ORDER BY a.address FOR NO KEY UPDATE;
    END IF;
    v_now := coalesce(p_now, greenroom_now());
    SELECT e.state <> 'ended' AND e.lease_until > v_now INTO v_lasts
    FROM executions e WHERE e.execution_id = p_execution;

    SELECT
        array_agg(CASE WHEN d.ordinary THEN coalesce(d.next_deliveries + 1, 0) END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.place END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.message_place END ORDER BY d.n),
        array_agg(d.timer IS NULL ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.next_place END ORDER BY d.n)
    INTO numbers, v_addresses, v_messages, v_counts, v_next
    FROM (
        SELECT
            i.n, a.place, m.place AS message_place, m.timer, f.place AS next_place, f.deliveries AS next_deliveries,
            v_lasts AND a.generation = i.generation AND a.owner = p_execution AND i.seq = a.handled_seq + 1
                AND a.settled_ahead = 0 AND m.status = 'queued' AND m.deliveries > 0
                AND (i.next IS NULL OR (
                    a.held = 0 AND i.next > i.seq AND f.status = 'queued' AND f.deliveries < i.most
                )) AS ordinary
        FROM unnest(p_address, p_generation, p_seq, p_next, p_most)
            WITH ORDINALITY i(address, generation, seq, next, most, n)
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.generation, x.owner, x.held, x.handled_seq, x.settled_ahead
            FROM addresses x WHERE x.address = i.address LIMIT 1
        ) a ON true
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.status, x.deliveries, x.timer FROM messages x
            WHERE x.address = i.address AND x.seq = i.seq LIMIT 1
        ) m ON true
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.status, x.deliveries FROM messages x
            WHERE x.address = i.address AND x.seq = i.next LIMIT 1
        ) f ON true
    ) d;

    IF p_batch IS NULL OR array_position(numbers, NULL) IS NULL THEN
        IF p_state_type IS NULL THEN
            UPDATE addresses a SET handled_seq = i.seq, ready = a.ready - 1, queued = a.queued - i.counts::int
            FROM unnest(v_addresses, p_seq, v_counts) i(place, seq, counts) WHERE a.ctid = i.place;
        ELSE
            UPDATE addresses a SET
                handled_seq = i.seq,
                ready = a.ready - 1,
                queued = a.queued - i.counts::int,
                state = CASE WHEN i.state_type IS NULL THEN a.state ELSE i.state END,
                state_size = CASE WHEN i.state_type IS NULL THEN a.state_size ELSE i.state_size END,
                state_type = coalesce(i.state_type, a.state_type),
                state_version = CASE WHEN i.state_type IS NULL THEN a.state_version ELSE i.state_version END
            FROM unnest(v_addresses, p_seq, v_counts, p_state, p_state_size, p_state_type, p_state_version)
                i(place, seq, counts, state, state_size, state_type, state_version)
            WHERE a.ctid = i.place;
        END IF;
        IF v_answered THEN
            UPDATE messages m SET
                status = 'handled', settled_at = v_now,
                reply = i.reply, reply_size = i.reply_size, error = i.error, error_size = i.error_size
            FROM unnest(v_messages, p_reply, p_reply_size, p_error, p_error_size)
                i(place, reply, reply_size, error, error_size)
            WHERE m.ctid = i.place AND (i.reply IS NOT NULL OR i.error IS NOT NULL);
        END IF;
        IF p_next IS NOT NULL THEN
            UPDATE messages m SET deliveries = m.deliveries + 1, delivered_at = v_now
            FROM unnest(v_next) i(place) WHERE m.ctid = i.place;
        END IF;
    END IF;

    IF p_batch IS NOT NULL THEN
        IF array_position(numbers, NULL) IS NOT NULL THEN
            numbers := NULL;
            RETURN;
        END IF;
        INSERT INTO batches (batch_id, at, transition_ids, kind, keys, numbers)
        VALUES (p_batch, v_now, p_ids, 'FinishDelivery', p_next::text[], numbers);
    END IF;
END
$function$;
