-- A whole batch of what busy mailboxes live by, in one call: messages come in, deliveries are begun, messages have been handled.
--
-- Everything goes its ordinary way, or nothing is done and the numbers are null. They stand in the order of the items: accepted,
-- begun, handled. Of the latter two an address has one. Among them their order means nothing. What comes in goes last: before
-- the others it could not be begun, and would find room as well, but where room is scarce: that is left to be done one by one.
CREATE FUNCTION {exchange}(
    p_batch text, p_ids text[], p_own text[], p_execution text,
    a_address text[], a_message text[], a_digest text[], a_type text[], a_body bytea[], a_size bigint[],
    a_sender text[], a_deliver bigint[], a_recipient text[], a_count bigint[], a_at bigint[], a_nth bigint[],
    b_address text[], b_generation bigint[], b_seq bigint[], b_most bigint[],
    f_address text[], f_generation bigint[], f_seq bigint[],
    f_reply bytea[], f_reply_size bigint[], f_error bytea[], f_error_size bigint[],
    f_state bytea[], f_state_size bigint[], f_state_type text[], f_state_version bigint[],
    f_next bigint[], f_most bigint[],
    OUT verdicts text[], OUT numbers bigint[], OUT woken text[], OUT news boolean
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_scarce boolean;
    v_now bigint;
    v_begun bigint[];
    v_handled bigint[];
BEGIN
    SELECT bool_or(l.scarce) INTO v_scarce FROM (
        SELECT a.queued + cardinality(a_address) > a.capacity AS scarce FROM addresses a
        WHERE a.address = ANY (a_address || b_address || f_address) ORDER BY a.address FOR NO KEY UPDATE
    ) l;
    IF v_scarce THEN
        RETURN;
    END IF;
    v_now := greenroom_now();
    news := false;
    BEGIN
        IF cardinality(b_address) > 0 THEN
            SELECT b.numbers INTO v_begun
            FROM {begin}(NULL, NULL, v_now, p_execution, b_address, b_generation, b_seq, b_most) b;
        END IF;
        IF cardinality(f_address) > 0 THEN
            SELECT f.numbers INTO v_handled
            FROM {finish}(
                NULL, NULL, v_now, p_execution, f_address, f_generation, f_seq, f_reply, f_reply_size, f_error, f_error_size,
                f_state, f_state_size, f_state_type, f_state_version, f_next, f_most
            ) f;
        END IF;
        IF array_position(v_begun, NULL) IS NOT NULL OR array_position(v_handled, NULL) IS NOT NULL THEN
            RAISE SQLSTATE 'GR001';
        END IF;
    EXCEPTION WHEN SQLSTATE 'GR001' THEN
        RETURN;
    END;
    IF cardinality(a_address) > 0 THEN
        SELECT a.verdicts, a.numbers, a.woken, a.news INTO verdicts, numbers, woken, news
        FROM {accept}(
            NULL, NULL, v_now, p_own, a_address, a_message, a_digest, a_type, a_body, a_size, a_sender, a_deliver,
            a_recipient, a_count, a_at, a_nth, false
        ) a;
    END IF;
    numbers := numbers || v_begun || v_handled;
    INSERT INTO batches (batch_id, at, transition_ids, kind, keys, verdicts, numbers)
    VALUES (
        p_batch, v_now, p_ids, 'Exchange',
        a_message || b_seq::text[] || coalesce(f_next::text[], array_fill(NULL::text, ARRAY[cardinality(f_address)])),
        coalesce(verdicts, array_fill('accepted'::text, ARRAY[cardinality(a_address)]))
            || array_fill('begun'::text, ARRAY[cardinality(b_address)])
            || array_fill('handled'::text, ARRAY[cardinality(f_address)]),
        numbers
    );
    IF news THEN
        PERFORM pg_notify('greenroom.' || current_schema(), pg_backend_pid()::text);
    END IF;
END
$function$;
