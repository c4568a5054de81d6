-- Turns of tasks by one execution, many at once, each of another task: outcomes of operations without intents, and ends.
-- `turns.commit` says the same for one, and for those that say more.
--
-- Only what goes its ordinary way is done. A number is that of the segment's last row, and is null for a turn that was left as
-- it was, which its caller decides by itself. Rows of journals come with the number of their turn, and the addresses once more.
-- With `p_batch` it is a whole transaction, and does everything or, with numbers that are null, nothing.
CREATE FUNCTION {turn}(
    p_batch text, p_ids text[], p_now bigint,
    p_execution text, p_address text[], p_generation bigint[], p_after bigint[], p_count bigint[], p_first bigint[],
    p_next_due bigint[], p_phase text[],
    p_outcome text[], p_result bytea[], p_result_size bigint[], p_error bytea[], p_error_size bigint[],
    r_turn bigint[], r_address text[], r_seq bigint[], r_at bigint[], r_call text[], r_name text[], r_status text[],
    r_possible bigint[], r_params bytea[], r_params_size bigint[], r_body bytea[], r_body_size bigint[],
    r_admitted bigint[], r_basis bigint[], r_digest bytea[], r_marks text[],
    OUT numbers bigint[], OUT news boolean
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
    v_lasts boolean;
    v_addresses tid[];
    v_tasks tid[];
    v_attempts bigint[];
    v_segments bigint[];
    v_taken bigint;
BEGIN
    IF p_batch IS NOT NULL THEN
        PERFORM 1 FROM addresses a WHERE a.address = ANY (p_address) ORDER BY a.address FOR NO KEY UPDATE;
    END IF;
    v_now := coalesce(p_now, greenroom_now());
    SELECT e.state <> 'ended' AND e.lease_until > v_now INTO v_lasts
    FROM executions e WHERE e.execution_id = p_execution;

    SELECT
        array_agg(CASE WHEN d.ordinary THEN d.after + d.count END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.address_place END ORDER BY d.n),
        array_agg(CASE WHEN d.ordinary THEN d.task_place END ORDER BY d.n),
        array_agg(coalesce(d.attempt, 0) ORDER BY d.n),
        array_agg(coalesce(d.segment, 0) ORDER BY d.n)
    INTO numbers, v_addresses, v_tasks, v_attempts, v_segments
    FROM (
        SELECT
            i.n, i.after, i.count, a.place AS address_place, t.place AS task_place, t.attempt, t.segment,
            v_lasts AND a.generation = i.generation AND a.owner = p_execution AND o.call IS NULL
                AND i.after = coalesce(j.seq, 0) AND coalesce(i.first >= coalesce(j.at, t.segment_at), true)
                AND t.suspicions = 0 AND (NOT t.placed OR p_outcome[i.n] IS NULL) AND t.next_due IS NOT DISTINCT FROM i.next_due
                AND t.phase IS NOT DISTINCT FROM i.phase AS ordinary
        FROM unnest(p_address, p_generation, p_after, p_count, p_first, p_next_due, p_phase)
            WITH ORDINALITY i(address, generation, after, count, first, next_due, phase, n)
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.generation, x.owner FROM addresses x WHERE x.address = i.address LIMIT 1
        ) a ON true
        LEFT JOIN LATERAL (
            SELECT x.ctid AS place, x.attempt, x.segment, x.segment_at, x.suspicions, x.next_due, x.phase, x.placed
            FROM tasks x WHERE x.address = i.address LIMIT 1
        ) t ON true
        LEFT JOIN LATERAL (
            SELECT x.seq, x.at FROM journal x
            WHERE x.address = i.address AND x.attempt = t.attempt AND x.segment = t.segment ORDER BY x.seq DESC LIMIT 1
        ) j ON true
        LEFT JOIN LATERAL (
            SELECT x.call FROM operations x WHERE x.address = i.address AND x.attempt = t.attempt LIMIT 1
        ) o ON true
    ) d;

    -- An operation that has its outcome leaves its turn as it was.
    FOR v_taken IN
        SELECT r.turn FROM unnest(r_turn, r_address, r_call) r(turn, address, call)
        CROSS JOIN LATERAL (
            SELECT 1 FROM journal x WHERE x.kind = 'outcome' AND x.call = r.call AND x.address = r.address
                AND x.attempt = v_attempts[r.turn] AND x.segment = v_segments[r.turn] LIMIT 1
        ) x
    LOOP
        numbers[v_taken] := NULL;
        v_addresses[v_taken] := NULL;
        v_tasks[v_taken] := NULL;
    END LOOP;

    IF p_batch IS NOT NULL AND array_position(numbers, NULL) IS NOT NULL THEN
        numbers := NULL;
        RETURN;
    END IF;

    INSERT INTO journal (
        address, attempt, segment, seq, at, kind, call, name, status, effect_possible, unresolved, params, params_size, body,
        body_size, admitted, basis, digest, marks, failed, execution_id, generation
    )
    SELECT
        r.address, v_attempts[r.turn], v_segments[r.turn], r.seq, r.at, 'outcome', r.call, r.name, r.status, r.possible = 1,
        false, r.params, r.params_size, r.body, r.body_size, r.admitted, r.basis, r.digest, r.marks, false, p_execution,
        p_generation[r.turn]
    FROM unnest(
        r_turn, r_address, r_seq, r_at, r_call, r_name, r_status, r_possible, r_params, r_params_size, r_body, r_body_size,
        r_admitted, r_basis, r_digest, r_marks
    ) r(
        turn, address, seq, at, call, name, status, possible, params, params_size, body, body_size, admitted, basis, digest, marks
    )
    WHERE numbers[r.turn] IS NOT NULL;

    news := false;
    IF p_outcome IS NOT NULL THEN
        UPDATE tasks t SET
            outcome = i.outcome, result = i.result, result_size = i.result_size, error = i.error, error_size = i.error_size,
            ended_at = v_now, contact_at = v_now, runnable = false, next_due = NULL, waits = '[]',
            state_version = t.state_version + 1
        FROM unnest(v_tasks, p_outcome, p_result, p_result_size, p_error, p_error_size)
            i(place, outcome, result, result_size, error, error_size)
        WHERE t.ctid = i.place AND i.outcome IS NOT NULL;
        UPDATE addresses a SET owner = NULL, closed_at = v_now
        FROM unnest(v_addresses, p_outcome) i(place, outcome)
        WHERE a.ctid = i.place AND i.outcome IS NOT NULL;
        news := true;
    END IF;

    IF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind, numbers)
        VALUES (p_batch, v_now, p_ids, 'CommitTurn', numbers);
        IF news THEN
            PERFORM pg_notify('greenroom.' || current_schema(), pg_backend_pid()::text);
        END IF;
    END IF;
END
$function$;
