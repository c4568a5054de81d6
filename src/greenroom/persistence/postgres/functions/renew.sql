-- Makes a lease that lasts longer, and leaves one that has passed as it is. The clock is read after the wait for the row (R2).
CREATE FUNCTION {renew}(p_execution text, p_lease bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
BEGIN
    PERFORM 1 FROM executions e WHERE e.execution_id = p_execution FOR NO KEY UPDATE;
    v_now := greenroom_now();
    UPDATE executions e SET lease_until = greatest(e.lease_until, v_now + p_lease)
    WHERE e.execution_id = p_execution AND e.state <> 'ended' AND e.lease_until > v_now;
    RETURN FOUND;
END
$function$;
