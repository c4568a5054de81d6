-- Tasks that may run at once are submitted, many at once. `tasks.submit` says the same for one, and for those that wait.
--
-- It does everything, or nothing and answers false: when one of them is not new, or finds no room, all are decided one by one.
-- Their turns depend on their order, which would be lost if some went ahead. With `p_batch` it is a whole transaction.
CREATE FUNCTION {submit}(
    p_batch text, p_ids text[], p_now bigint,
    p_address text[], p_pool text[], p_group text[], p_priority bigint[], p_capacity bigint[],
    p_request bytea[], p_request_size bigint[], p_request_type text[], p_request_digest text[],
    p_deadline bigint[], p_parent text[], p_policy text[], p_seed bytea[],
    OUT done boolean
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_key bigint;
    v_now bigint;
    v_turns bigint[];
BEGIN
    IF p_batch IS NOT NULL THEN
        PERFORM 1 FROM task_pools p WHERE p.pool = ANY (p_pool) ORDER BY p.pool FOR NO KEY UPDATE;
        -- A row that is not there cannot be locked.
        FOR v_key IN SELECT DISTINCT hashtextextended(c, 0) AS key FROM unnest(p_address) c ORDER BY key LOOP
            PERFORM pg_advisory_xact_lock(v_key);
        END LOOP;
    END IF;
    v_now := coalesce(p_now, greenroom_now());

    SELECT
        bool_and(d.ordinary),
        array_agg(greatest(d.pool_turn, coalesce(d.group_turn, 0)) + d.nth_of_group ORDER BY d.n)
    INTO done, v_turns
    FROM (
        SELECT
            c.*,
            c.fresh AND (c.queue_limit IS NULL
                OR c.runnable + row_number() OVER (PARTITION BY c.pool ORDER BY c.n) <= c.queue_limit) AS ordinary,
            row_number() OVER (PARTITION BY c.pool, c.group_key ORDER BY c.n) AS nth_of_group
        FROM (
            SELECT
                i.n, i.pool, i.group_key, p.queue_limit, p.runnable, p.turn AS pool_turn, g.turn AS group_turn,
                a.address IS NULL AND p.turn IS NOT NULL AS fresh
            FROM unnest(p_address, p_pool, p_group) WITH ORDINALITY i(address, pool, group_key, n)
            LEFT JOIN LATERAL (SELECT x.address FROM addresses x WHERE x.address = i.address LIMIT 1) a ON true
            LEFT JOIN LATERAL (
                SELECT x.queue_limit, x.runnable, x.turn FROM task_pools x WHERE x.pool = i.pool LIMIT 1
            ) p ON true
            LEFT JOIN LATERAL (
                SELECT x.turn FROM task_groups x WHERE x.pool = i.pool AND x.group_key = i.group_key LIMIT 1
            ) g ON true
        ) c
    ) d;

    IF NOT done THEN
        RETURN;
    END IF;

    INSERT INTO addresses (address, kind, generation, capacity)
    SELECT i.address, 'task', 0, i.capacity
    FROM unnest(p_address, p_capacity) i(address, capacity);

    INSERT INTO tasks (
        address, pool, group_key, priority, turn, runnable, request, request_size, request_type, request_digest,
        submitted_at, deadline, parent, parent_policy, attempt_at, seed, segment_at
    )
    SELECT
        i.address, i.pool, i.group_key, i.priority, i.turn, true, i.request, i.request_size, i.request_type,
        i.request_digest, v_now, i.deadline, i.parent, i.policy, v_now, i.seed, v_now
    FROM unnest(
        p_address, p_pool, p_group, p_priority, v_turns, p_request, p_request_size, p_request_type, p_request_digest,
        p_deadline, p_parent, p_policy, p_seed
    ) i(
        address, pool, group_key, priority, turn, request, request_size, request_type, request_digest, deadline, parent,
        policy, seed
    );

    UPDATE task_pools p SET runnable = p.runnable + u.count
    FROM (SELECT i.pool, count(*) AS count FROM unnest(p_pool) i(pool) GROUP BY i.pool) u
    WHERE p.pool = u.pool;

    INSERT INTO task_groups (pool, group_key, turn)
    SELECT i.pool, i.group_key, max(i.turn) FROM unnest(p_pool, p_group, v_turns) i(pool, group_key, turn)
    GROUP BY i.pool, i.group_key
    ON CONFLICT (pool, group_key) DO UPDATE SET turn = excluded.turn;

    IF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind) VALUES (p_batch, v_now, p_ids, 'SubmitTask');
        PERFORM pg_notify('greenroom.' || current_schema(), pg_backend_pid()::text);
    END IF;
END
$function$;
