-- All row locks of a batch, in the canonical order, and the addresses that are decided about in Python, as they are then.
--
-- Whoever claims or opens an address may make it, and a row that is not there cannot be locked: an advisory lock comes first.
-- A claimer's execution is kept from ending until the claim is committed. Everything is read after the last lock was had.
CREATE FUNCTION {lock}(
    p_made text[], p_claimers text[], p_executions text[], p_addresses text[], p_callbacks text[], p_load text[]
) RETURNS TABLE (
    now bigint, address text, last_seq bigint, handled_seq bigint, settled_ahead bigint, queued bigint, ready bigint,
    delayed bigint, last_delayed bigint, held bigint, last_ordinal bigint, kind text, generation bigint, owner text,
    capacity bigint, parked text, parked_detail text, closed_at bigint, state bytea, state_size bigint,
    state_type text, state_version bigint, due_at bigint
) LANGUAGE plpgsql VOLATILE AS $function$
#variable_conflict use_column
DECLARE
    v_key bigint;
    v_now bigint;
BEGIN
    IF cardinality(p_made) > 0 THEN
        FOR v_key IN SELECT DISTINCT hashtextextended(c, 0) AS key FROM unnest(p_made) c ORDER BY key LOOP
            PERFORM pg_advisory_xact_lock(v_key);
        END LOOP;
    END IF;
    IF cardinality(p_claimers) > 0 THEN
        PERFORM 1 FROM executions e WHERE e.execution_id = ANY (p_claimers) ORDER BY e.execution_id FOR SHARE;
    END IF;
    IF cardinality(p_executions) > 0 THEN
        PERFORM 1 FROM executions e WHERE e.execution_id = ANY (p_executions)
            ORDER BY e.execution_id FOR NO KEY UPDATE;
    END IF;
    IF cardinality(p_addresses) > 0 THEN
        PERFORM 1 FROM addresses a WHERE a.address = ANY (p_addresses) ORDER BY a.address FOR NO KEY UPDATE;
    END IF;
    IF cardinality(p_callbacks) > 0 THEN
        PERFORM 1 FROM callbacks c WHERE c.callback_id = ANY (p_callbacks) ORDER BY c.callback_id FOR NO KEY UPDATE;
    END IF;
    v_now := greenroom_now();
    RETURN QUERY SELECT v_now, a.*
        FROM (SELECT 1) one LEFT JOIN (
            SELECT r.* FROM unnest(p_load) wanted(address) CROSS JOIN LATERAL (
                SELECT
                    a.address, a.last_seq, a.handled_seq, a.settled_ahead, a.queued, a.ready, a.delayed, a.last_delayed,
                    a.held, a.last_ordinal, a.kind, a.generation, a.owner, a.capacity, a.parked, a.parked_detail,
                    a.closed_at, a.state, a.state_size, a.state_type, a.state_version, a.due_at
                FROM addresses a WHERE a.address = wanted.address LIMIT 1
            ) r
        ) a ON true;
END
$function$;
