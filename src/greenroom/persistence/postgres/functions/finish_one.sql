-- One message has been handled, as `finish` says for many, in as few statements as can be.
--
-- The number counts the deliveries of the next message, where that was begun too, or is 0; null, with nothing done, for what does
-- not go its ordinary way. With `p_batch` it is a whole transaction.
CREATE FUNCTION {finish_one}(
    p_batch text, p_id text, p_now bigint,
    p_execution text, p_address text, p_generation bigint, p_seq bigint,
    p_reply bytea, p_reply_size bigint, p_error bytea, p_error_size bigint,
    p_state bytea, p_state_size bigint, p_state_type text, p_state_version bigint,
    p_next bigint, p_most bigint,
    OUT number bigint
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_counts bigint;
BEGIN
    PERFORM 1 FROM addresses a
    WHERE a.address = p_address AND a.generation = p_generation AND a.owner = p_execution
        AND a.handled_seq = p_seq - 1 AND a.settled_ahead = 0 AND (p_next IS NULL OR a.held = 0)
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- The lease is read after the wait for that row, and so is the clock.
    v_now := coalesce(p_now, greenroom_now());
    SELECT (m.timer IS NULL)::int INTO v_counts FROM messages m, executions e
    WHERE m.address = p_address AND m.seq = p_seq AND m.status = 'queued' AND m.deliveries > 0
        AND e.execution_id = p_execution AND e.state <> 'ended' AND e.lease_until > v_now;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_next IS NOT NULL THEN
        UPDATE messages m SET deliveries = m.deliveries + 1, delivered_at = v_now
        WHERE m.address = p_address AND m.seq = p_next AND p_next > p_seq AND m.status = 'queued' AND m.deliveries < p_most
        RETURNING m.deliveries INTO number;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    ELSE
        number := 0;
    END IF;
    IF p_state_type IS NULL THEN
        UPDATE addresses a SET handled_seq = p_seq, ready = a.ready - 1, queued = a.queued - v_counts
        WHERE a.address = p_address;
    ELSE
        UPDATE addresses a SET
            handled_seq = p_seq, ready = a.ready - 1, queued = a.queued - v_counts,
            state = p_state, state_size = p_state_size, state_type = p_state_type, state_version = p_state_version
        WHERE a.address = p_address;
    END IF;
    IF p_reply IS NOT NULL OR p_error IS NOT NULL THEN
        UPDATE messages m SET
            status = 'handled', settled_at = v_now,
            reply = p_reply, reply_size = p_reply_size, error = p_error, error_size = p_error_size
        WHERE m.address = p_address AND m.seq = p_seq;
    END IF;
    IF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind, keys, numbers)
        VALUES (p_batch, v_now, ARRAY[p_id], 'FinishDelivery', ARRAY[p_next::text], ARRAY[number]);
    END IF;
END
$function$;
