-- Deliveries are begun, many at once, each at an address of its own. `deliveries.begin` says the same for one.
--
-- Only what goes its ordinary way is done: a verdict is 'begun', and null for whatever was left as it was, which its caller
-- decides one by one. With `p_batch` it is a whole transaction, and does everything or, with null verdicts, nothing.
CREATE FUNCTION {begin}(
    p_batch text, p_ids text[], p_now bigint,
    p_address text[], p_execution text[], p_generation bigint[], p_seq bigint[], p_most bigint[],
    OUT verdicts text[], OUT numbers bigint[]
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_rows tid[];
BEGIN
    IF p_batch IS NOT NULL THEN
        PERFORM 1 FROM addresses a WHERE a.address = ANY (p_address) ORDER BY a.address FOR NO KEY UPDATE;
    END IF;
    v_now := coalesce(p_now, greenroom_now());

    SELECT
        array_agg(CASE WHEN d.ordinary THEN 'begun' END ORDER BY d.n),
        array_agg(d.deliveries + 1 ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.place END ORDER BY d.n)
    INTO verdicts, numbers, v_rows
    FROM (
        SELECT
            i.n, m.place, m.deliveries,
            coalesce(
                a.generation = i.generation AND a.owner = i.execution AND a.held = 0 AND i.seq > a.handled_seq
                AND e.state <> 'ended' AND e.lease_until > v_now AND m.status = 'queued' AND m.deliveries < i.most,
                false
            ) AS ordinary
        FROM unnest(p_address, p_execution, p_generation, p_seq, p_most)
            WITH ORDINALITY i(address, execution, generation, seq, most, n)
        LEFT JOIN LATERAL (
            SELECT x.generation, x.owner, x.held, x.handled_seq FROM addresses x WHERE x.address = i.address LIMIT 1
        ) a ON true
        LEFT JOIN LATERAL (
            SELECT x.state, x.lease_until FROM executions x WHERE x.execution_id = i.execution LIMIT 1
        ) e ON true
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.status, x.deliveries FROM messages x
            WHERE x.address = i.address AND x.seq = i.seq LIMIT 1
        ) m ON true
    ) d;

    IF p_batch IS NOT NULL AND array_position(verdicts, NULL) IS NOT NULL THEN
        verdicts := NULL;
        RETURN;
    END IF;

    UPDATE messages m SET deliveries = m.deliveries + 1, delivered_at = v_now
    FROM unnest(v_rows) i(place) WHERE m.ctid = i.place;

    IF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind, addresses, keys, verdicts, numbers)
        VALUES (p_batch, v_now, p_ids, 'BeginDelivery', p_address, p_seq::text[], verdicts, numbers);
    END IF;
END
$function$;
