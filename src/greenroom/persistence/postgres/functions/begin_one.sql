-- One delivery is begun, as `begin` says for many, in as few statements as can be.
--
-- The number counts the message's deliveries; null, with nothing done, for what does not go its ordinary way.
-- With `p_batch` it is a whole transaction.
CREATE FUNCTION {begin_one}(
    p_batch text, p_id text, p_now bigint,
    p_execution text, p_address text, p_generation bigint, p_seq bigint, p_most bigint,
    OUT number bigint
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
BEGIN
    PERFORM 1 FROM addresses a
    WHERE a.address = p_address AND a.generation = p_generation AND a.owner = p_execution AND a.held = 0
        AND a.handled_seq < p_seq
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- The lease is read after the wait for that row, and so is the clock.
    v_now := coalesce(p_now, greenroom_now());
    UPDATE messages m SET deliveries = m.deliveries + 1, delivered_at = v_now FROM executions e
    WHERE m.address = p_address AND m.seq = p_seq AND m.status = 'queued' AND m.deliveries < p_most
        AND e.execution_id = p_execution AND e.state <> 'ended' AND e.lease_until > v_now
    RETURNING m.deliveries INTO number;
    IF p_batch IS NOT NULL AND number IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind, keys, numbers)
        VALUES (p_batch, v_now, ARRAY[p_id], 'BeginDelivery', ARRAY[p_seq::text], ARRAY[number]);
    END IF;
END
$function$;
