-- One turn of a task, with one row at most, as `turn` says for many, in as few statements as can be.
--
-- The number is that of the segment's last row; null, with nothing done, for what does not go its ordinary way.
-- With `p_batch` it is a whole transaction.
CREATE FUNCTION {turn_one}(
    p_batch text, p_id text, p_now bigint,
    p_execution text, p_address text, p_generation bigint, p_after bigint, p_next_due bigint, p_phase text,
    p_outcome text, p_result bytea, p_result_size bigint, p_error bytea, p_error_size bigint,
    p_at bigint, p_call text, p_name text, p_status text, p_possible boolean, p_params bytea, p_params_size bigint,
    p_body bytea, p_body_size bigint, p_admitted bigint, p_basis bigint, p_digest bytea, p_marks text,
    OUT number bigint
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_attempt bigint;
    v_segment bigint;
BEGIN
    PERFORM 1 FROM addresses a
    WHERE a.address = p_address AND a.generation = p_generation AND a.owner = p_execution
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- The lease is read after the wait for that row, and so is the clock.
    v_now := coalesce(p_now, greenroom_now());
    SELECT t.attempt, t.segment INTO v_attempt, v_segment
    FROM executions e, tasks t LEFT JOIN LATERAL (
        SELECT x.seq, x.at FROM journal x
        WHERE x.address = p_address AND x.attempt = t.attempt AND x.segment = t.segment ORDER BY x.seq DESC LIMIT 1
    ) j ON true LEFT JOIN LATERAL (
        SELECT x.call FROM operations x WHERE x.address = p_address AND x.attempt = t.attempt LIMIT 1
    ) o ON true
    WHERE e.execution_id = p_execution AND e.state <> 'ended' AND e.lease_until > v_now AND t.address = p_address
        AND p_after = coalesce(j.seq, 0) AND (p_at >= coalesce(j.at, t.segment_at)) IS NOT FALSE
        AND o.call IS NULL AND t.suspicions = 0 AND (NOT t.placed OR p_outcome IS NULL)
        AND t.next_due IS NOT DISTINCT FROM p_next_due AND t.phase IS NOT DISTINCT FROM p_phase;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF p_call IS NOT NULL THEN
        INSERT INTO journal (
            address, attempt, segment, seq, at, kind, call, name, status, effect_possible, unresolved, params, params_size,
            body, body_size, admitted, basis, digest, marks, failed, execution_id, generation
        ) VALUES (
            p_address, v_attempt, v_segment, p_after + 1, p_at, 'outcome', p_call, p_name, p_status, p_possible, false,
            p_params, p_params_size, p_body, p_body_size, p_admitted, p_basis, p_digest, p_marks, false, p_execution,
            p_generation
        ) ON CONFLICT (call, address, attempt, segment) WHERE kind = 'outcome' DO NOTHING;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF p_outcome IS NOT NULL THEN
        UPDATE tasks t SET
            outcome = p_outcome, result = p_result, result_size = p_result_size, error = p_error, error_size = p_error_size,
            ended_at = v_now, contact_at = v_now, runnable = false, next_due = NULL, waits = '[]',
            state_version = t.state_version + 1
        WHERE t.address = p_address;
        UPDATE addresses a SET owner = NULL, closed_at = v_now WHERE a.address = p_address;
    END IF;
    number := p_after + (p_call IS NOT NULL)::int;
    IF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind, numbers)
        VALUES (p_batch, v_now, ARRAY[p_id], 'CommitTurn', ARRAY[number]);
        IF p_outcome IS NOT NULL THEN
            PERFORM pg_notify('greenroom.' || current_schema(), pg_backend_pid()::text);
        END IF;
    END IF;
END
$function$;
