-- Runnable tasks that nobody owns are claimed by one execution, many at once. `tasks.claim` says the same for one, and for those
-- that are taken over from others, or whose pool has limits.
--
-- A number is the new generation, and is null for a task that was left as it was, which its caller decides by itself. Locks and
-- the batch's row are its caller's.
CREATE FUNCTION {claim}(
    p_now bigint, p_execution text, p_address text[], p_pool text[], p_version text[],
    OUT numbers bigint[]
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_may boolean;
    v_addresses tid[];
    v_tasks tid[];
    v_turns bigint[];
BEGIN
    SELECT e.state = 'active' AND e.lease_until > p_now INTO v_may FROM executions e WHERE e.execution_id = p_execution;

    SELECT
        array_agg(CASE WHEN d.ordinary THEN d.generation + 1 END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.address_place END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.task_place END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.turn END ORDER BY d.n)
    INTO numbers, v_addresses, v_tasks, v_turns
    FROM (
        SELECT
            i.n, a.generation, a.place AS address_place, t.place AS task_place, t.turn,
            v_may AND t.runnable AND t.pool = i.pool AND a.owner IS NULL AND a.parked IS NULL AND a.closed_at IS NULL
                AND p.unlimited
                AS ordinary
        FROM unnest(p_address, p_pool) WITH ORDINALITY i(address, pool, n)
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.generation, x.owner, x.parked, x.closed_at
            FROM addresses x WHERE x.address = i.address LIMIT 1
        ) a ON true
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.pool, x.turn, x.runnable FROM tasks x WHERE x.address = i.address LIMIT 1
        ) t ON true
        LEFT JOIN LATERAL (
            SELECT x.per_group IS NULL AND x.rate_count IS NULL AS unlimited FROM task_pools x WHERE x.pool = i.pool LIMIT 1
        ) p ON true
    ) d;

    UPDATE addresses a SET generation = i.number, owner = p_execution, due_at = NULL
    FROM unnest(v_addresses, numbers) i(place, number) WHERE a.ctid = i.place;

    -- Its time begins when it does, however long it stood in the queue: unless its attempt has taken over rows of the one before.
    UPDATE tasks t SET
        runnable = false, version = coalesce(t.version, i.version), contact_at = p_now, waits = '[]',
        segment_at = CASE WHEN t.version IS NULL AND (
            SELECT j.seq FROM journal j WHERE j.address = t.address AND j.attempt = t.attempt AND j.segment = t.segment LIMIT 1
        ) IS NULL THEN p_now ELSE t.segment_at END
    FROM unnest(v_tasks, p_version) i(place, version) WHERE t.ctid = i.place;

    UPDATE task_pools p SET runnable = p.runnable - u.count, turn = greatest(p.turn, u.turn)
    FROM (
        SELECT i.pool, count(*) AS count, max(i.turn) AS turn FROM unnest(p_pool, v_turns) i(pool, turn)
        WHERE i.turn IS NOT NULL GROUP BY i.pool
    ) u
    WHERE p.pool = u.pool;
END
$function$;
