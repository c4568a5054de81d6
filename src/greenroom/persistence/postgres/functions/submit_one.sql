-- One task that may run at once is submitted, as `submit` says for many, in as few statements as can be.
--
-- It answers null, with nothing done, when the task is not new, or finds no room. With `p_batch` it is a whole transaction.
CREATE FUNCTION {submit_one}(
    p_batch text, p_id text, p_now bigint,
    p_address text, p_pool text, p_group text, p_priority bigint, p_capacity bigint,
    p_request bytea, p_request_size bigint, p_request_type text, p_request_digest text,
    p_deadline bigint, p_parent text, p_policy text, p_seed bytea,
    OUT done boolean
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_turn bigint;
BEGIN
    UPDATE task_pools p SET runnable = p.runnable + 1
    WHERE p.pool = p_pool AND (p.runnable < p.queue_limit) IS NOT FALSE
    RETURNING p.turn INTO v_turn;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_batch IS NOT NULL THEN
        -- A row that is not there cannot be locked.
        PERFORM pg_advisory_xact_lock(hashtextextended(p_address, 0));
    END IF;
    INSERT INTO addresses (address, kind, generation, capacity) VALUES (p_address, 'task', 0, p_capacity)
    ON CONFLICT (address) DO NOTHING;
    IF NOT FOUND THEN
        UPDATE task_pools p SET runnable = p.runnable - 1 WHERE p.pool = p_pool;
        RETURN;
    END IF;
    v_now := coalesce(p_now, greenroom_now());
    INSERT INTO task_groups AS g (pool, group_key, turn) VALUES (p_pool, p_group, v_turn + 1)
    ON CONFLICT (pool, group_key) DO UPDATE SET turn = greatest(g.turn, v_turn) + 1
    RETURNING g.turn INTO v_turn;
    INSERT INTO tasks (
        address, pool, group_key, priority, turn, runnable, request, request_size, request_type, request_digest,
        submitted_at, deadline, parent, parent_policy, attempt_at, seed, segment_at
    ) VALUES (
        p_address, p_pool, p_group, p_priority, v_turn, true, p_request, p_request_size, p_request_type, p_request_digest,
        v_now, p_deadline, p_parent, p_policy, v_now, p_seed, v_now
    );
    done := true;
    IF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind) VALUES (p_batch, v_now, ARRAY[p_id], 'SubmitTask');
        PERFORM pg_notify('greenroom.' || current_schema(), pg_backend_pid()::text);
    END IF;
END
$function$;
