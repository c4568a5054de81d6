-- One runnable task that nobody owns is claimed, as `claim` says for many, in as few statements as can be.
--
-- It answers the store's time with all columns of the task; null, with nothing done, for what does not go its ordinary way.
-- Without `p_now` it locks; the batch's row is its caller's in any case, which must have read the task before it commits.
CREATE FUNCTION {claim_one}(p_now bigint, p_execution text, p_address text, p_pool text, p_version text)
RETURNS record LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_turn bigint;
    v_task record;
BEGIN
    IF p_now IS NULL THEN
        PERFORM 1 FROM task_pools p WHERE p.pool = p_pool FOR NO KEY UPDATE;
        PERFORM 1 FROM executions e WHERE e.execution_id = p_execution FOR SHARE;
        PERFORM 1 FROM addresses a WHERE a.address = p_address FOR NO KEY UPDATE;
    END IF;
    v_now := coalesce(p_now, greenroom_now());
    -- Its time begins when it does, however long it stood in the queue: unless its attempt has taken over rows of the one before.
    UPDATE tasks t SET
        runnable = false, version = coalesce(t.version, p_version), contact_at = v_now, waits = '[]',
        segment_at = CASE WHEN t.version IS NULL AND (
            SELECT j.seq FROM journal j WHERE j.address = t.address AND j.attempt = t.attempt AND j.segment = t.segment LIMIT 1
        ) IS NULL THEN v_now ELSE t.segment_at END
    FROM
        -- By itself: it must not be sought in its pool's queue.
        (SELECT x.ctid AS place, x.pool, x.runnable FROM tasks x WHERE x.address = p_address LIMIT 1) i,
        addresses a, task_pools p, executions e
    WHERE t.ctid = i.place AND i.runnable AND i.pool = p_pool
        AND a.address = p_address AND a.owner IS NULL AND a.parked IS NULL AND a.closed_at IS NULL
        AND p.pool = p_pool AND p.per_group IS NULL AND p.rate_count IS NULL
        AND e.execution_id = p_execution AND e.state = 'active' AND e.lease_until > v_now
    RETURNING t.turn INTO v_turn;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE addresses a SET generation = a.generation + 1, owner = p_execution, due_at = NULL WHERE a.address = p_address;
    UPDATE task_pools p SET runnable = p.runnable - 1, turn = greatest(p.turn, v_turn) WHERE p.pool = p_pool;
    SELECT v_now, {task_columns} INTO v_task FROM tasks t JOIN addresses a ON a.address = t.address WHERE t.address = p_address;
    RETURN v_task;
END
$function$;
