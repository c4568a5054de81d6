-- Deliveries are begun by one execution, many at once, each at an address of its own. `deliveries.begin` says the same for one.
--
-- Only what goes its ordinary way is done. A number counts the deliveries of a message, and is null for one that was left as it
-- was, which its caller decides by itself. With `p_batch` it is a whole transaction, and does everything or, with numbers that
-- are null, nothing.
CREATE FUNCTION {begin}(
    p_batch text, p_ids text[], p_now bigint,
    p_execution text, p_address text[], p_generation bigint[], p_seq bigint[], p_most bigint[],
    OUT numbers bigint[]
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_lasts boolean;
    v_rows tid[];
BEGIN
    IF p_batch IS NOT NULL THEN
        PERFORM 1 FROM addresses a WHERE a.address = ANY (p_address) ORDER BY a.address FOR NO KEY UPDATE;
    END IF;
    v_now := coalesce(p_now, greenroom_now());
    SELECT e.state <> 'ended' AND e.lease_until > v_now INTO v_lasts
    FROM executions e WHERE e.execution_id = p_execution;

    SELECT
        array_agg(CASE WHEN d.ordinary THEN d.deliveries + 1 END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.place END ORDER BY d.n)
    INTO numbers, v_rows
    FROM (
        SELECT
            i.n, m.place, m.deliveries,
            v_lasts AND a.generation = i.generation AND a.owner = p_execution AND a.held = 0
                AND i.seq > a.handled_seq AND m.status = 'queued' AND m.deliveries < i.most AS ordinary
        FROM unnest(p_address, p_generation, p_seq, p_most) WITH ORDINALITY i(address, generation, seq, most, n)
        LEFT JOIN LATERAL (
            SELECT x.generation, x.owner, x.held, x.handled_seq FROM addresses x WHERE x.address = i.address LIMIT 1
        ) a ON true
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.status, x.deliveries FROM messages x
            WHERE x.address = i.address AND x.seq = i.seq LIMIT 1
        ) m ON true
    ) d;

    IF p_batch IS NULL OR array_position(numbers, NULL) IS NULL THEN
        UPDATE messages m SET deliveries = m.deliveries + 1, delivered_at = v_now
        FROM unnest(v_rows) i(place) WHERE m.ctid = i.place;
    END IF;

    IF p_batch IS NOT NULL THEN
        IF array_position(numbers, NULL) IS NOT NULL THEN
            numbers := NULL;
            RETURN;
        END IF;
        INSERT INTO batches (batch_id, at, transition_ids, kind, keys, numbers)
        VALUES (p_batch, v_now, p_ids, 'BeginDelivery', p_seq::text[], numbers);
    END IF;
END
$function$;
