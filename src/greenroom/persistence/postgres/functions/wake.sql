-- Waiting tasks whose time has come are put into their pools' queues, many at once. `tasks.wake` says the same for one.
--
-- Only what goes its ordinary way is done, and answered true; what is answered false was left as it was, for its caller to decide
-- one by one. Locks and the batch's row are its caller's.
CREATE FUNCTION {wake}(p_now bigint, p_address text[], p_pool text[], OUT done boolean[])
LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_addresses tid[];
    v_tasks tid[];
BEGIN
    SELECT
        array_agg(d.ordinary ORDER BY d.n),
        array_agg(d.address_place ORDER BY d.n) FILTER (WHERE d.ordinary),
        array_agg(d.task_place ORDER BY d.n) FILTER (WHERE d.ordinary)
    INTO done, v_addresses, v_tasks
    FROM (
        SELECT
            i.n, a.place AS address_place, t.place AS task_place,
            coalesce(
                NOT t.runnable AND t.pool = i.pool AND a.owner IS NULL AND a.parked IS NULL AND a.closed_at IS NULL
                    AND a.due_at <= p_now,
                false
            ) AS ordinary
        FROM unnest(p_address, p_pool) WITH ORDINALITY i(address, pool, n)
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.owner, x.parked, x.closed_at, x.due_at FROM addresses x WHERE x.address = i.address LIMIT 1
        ) a ON true
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.pool, x.runnable FROM tasks x WHERE x.address = i.address LIMIT 1
        ) t ON true
    ) d;

    UPDATE addresses a SET due_at = NULL FROM unnest(v_addresses) i(place) WHERE a.ctid = i.place;
    UPDATE tasks t SET runnable = true FROM unnest(v_tasks) i(place) WHERE t.ctid = i.place;
    UPDATE task_pools p SET runnable = p.runnable + u.count
    FROM (
        SELECT i.pool, count(*) AS count FROM unnest(p_pool, done) i(pool, ordinary) WHERE i.ordinary GROUP BY i.pool
    ) u
    WHERE p.pool = u.pool;
END
$function$;
