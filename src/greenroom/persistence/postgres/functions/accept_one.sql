-- One message comes in at an address that somebody owns, as `accept` says for many: a lone sender's way, in as few statements as
-- can be. What each costs here is its setting up, in every transaction anew.
--
-- The number is its place; null, with nothing done, for what does not go its ordinary way: it is left to `accept`.
-- With `p_batch` it is a whole transaction.
CREATE FUNCTION {accept_one}(
    p_batch text, p_id text, p_now bigint, p_own text[],
    p_address text, p_message text, p_digest text, p_type text, p_body bytea, p_size bigint, p_sender text,
    OUT number bigint, OUT news boolean
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    v_now bigint;
BEGIN
    UPDATE addresses a SET last_seq = a.last_seq + 1, ready = a.ready + 1, queued = a.queued + 1
    WHERE a.address = p_address AND a.owner IS NOT NULL AND (a.queued < a.capacity) IS NOT FALSE
    RETURNING a.last_seq, a.owner <> ALL (p_own) INTO number, news;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    v_now := coalesce(p_now, greenroom_now());
    INSERT INTO messages (address, seq, message_id, digest, type, body, body_size, sender, status, accepted_at)
    VALUES (p_address, number, p_message, p_digest, p_type, p_body, p_size, p_sender, 'queued', v_now)
    ON CONFLICT (message_id, address) DO NOTHING;
    IF NOT FOUND THEN
        UPDATE addresses a SET last_seq = a.last_seq - 1, ready = a.ready - 1, queued = a.queued - 1
        WHERE a.address = p_address;
        number := NULL;
    ELSIF p_batch IS NOT NULL THEN
        INSERT INTO batches (batch_id, at, transition_ids, kind, keys, numbers)
        VALUES (p_batch, v_now, ARRAY[p_id], 'AcceptMessage', ARRAY[p_message], ARRAY[number]);
        IF news THEN
            PERFORM pg_notify('greenroom.' || current_schema(), pg_backend_pid()::text);
        END IF;
    END IF;
END
$function$;
