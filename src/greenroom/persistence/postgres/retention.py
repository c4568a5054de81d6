"""How PostgreSQL forgets."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.postgres.mail import DEAD, HANDLED, QUEUED
from greenroom.persistence.postgres.unit import Unit
from greenroom.persistence.retention import Prunable, Prune, Pruned

ADDRESSES: Final = 100
"""Addresses that one pruning of messages looks at, at most."""

# Old rows of the kinds that are forgotten by one column; the second parameter is the limit.
OLD: Final = {
    Prunable.OBSERVATIONS: "SELECT id FROM observations WHERE at < $1 ORDER BY at LIMIT $2",
    Prunable.CALLBACKS: (
        "SELECT callback_id FROM callbacks WHERE status <> 'open' AND settled_at < $1 ORDER BY settled_at LIMIT $2"
    ),
    Prunable.OUTBOX: "SELECT ctid FROM outbox WHERE status = 'sent' AND settled_at < $1 ORDER BY settled_at LIMIT $2",
    Prunable.EXECUTIONS: (
        "SELECT execution_id FROM executions WHERE state = 'ended' AND ended_at < $1 "
        "AND NOT EXISTS (SELECT 1 FROM addresses WHERE owner = executions.execution_id) LIMIT $2"
    ),
    Prunable.BATCHES: "SELECT batch_id FROM batches WHERE at < $1 ORDER BY at LIMIT $2",
    Prunable.CONTENT: (
        "SELECT digest FROM content WHERE chunk = 0 AND kept_at < $1 "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE body_content = content.digest) "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE reply_content = content.digest) "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE error_content = content.digest) "
        "AND NOT EXISTS (SELECT 1 FROM addresses WHERE state_content = content.digest) "
        "AND NOT EXISTS (SELECT 1 FROM outbox WHERE body_content = content.digest) "
        "AND NOT EXISTS (SELECT 1 FROM callbacks WHERE answer_content = content.digest) "
        "AND NOT EXISTS (SELECT 1 FROM observations WHERE body_content = content.digest) LIMIT $2"
    ),
}
# Rows of others are not waited for: they are forgotten the next time.
LOCK: Final = " FOR UPDATE SKIP LOCKED"
# Those rows.
DELETE: Final = {
    Prunable.OBSERVATIONS: "DELETE FROM observations WHERE id = ANY ($1)",
    Prunable.CALLBACKS: "DELETE FROM callbacks WHERE callback_id = ANY ($1)",
    Prunable.OUTBOX: "DELETE FROM outbox WHERE ctid = ANY ($1)",
    Prunable.EXECUTIONS: "DELETE FROM executions WHERE execution_id = ANY ($1)",
    Prunable.BATCHES: "DELETE FROM batches WHERE batch_id = ANY ($1)",
    Prunable.CONTENT: "DELETE FROM content WHERE digest = ANY ($1)",
}
# Observations of senders that have more than their share, all but the newest.
SELECT_TOO_MANY = (
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY sender ORDER BY id DESC) AS place FROM observations "
    "WHERE sender IS NOT NULL) ranked WHERE place > $1 LIMIT $2"
)
# The next addresses, locked, with how far their messages are handled.
SELECT_ADDRESSES = (
    "SELECT address, handled_seq FROM addresses WHERE address > $1 ORDER BY address LIMIT $2 FOR NO KEY UPDATE"
)
# Settled messages of an address, in order.
SELECT_SETTLED = (
    "SELECT seq, status, coalesce(settled_at, delivered_at, accepted_at) FROM messages "
    "WHERE address = $1 AND seq > 0 AND seq <= $2 ORDER BY seq"
)
# Messages of an address.
DELETE_MESSAGES = "DELETE FROM messages WHERE address = $1 AND seq = ANY ($2)"


async def prune(unit: Unit, item: Prune) -> Pruned:
    before = unit.now - round(item.age.total_seconds() * 1e6)
    if item.kind is Prunable.MESSAGES:
        return await _prune_messages(unit, item, before)
    lock = "" if item.dry_run else LOCK
    keys = [key for (key,) in await unit.all(OLD[item.kind] + lock, before, item.limit)]
    if item.kind is Prunable.OBSERVATIONS and item.per_sender is not None and len(keys) < item.limit:
        rest = await unit.all(SELECT_TOO_MANY, item.per_sender, item.limit - len(keys))
        keys += sorted({key for (key,) in rest} - set(keys))
    if not item.dry_run:
        await unit.change(DELETE[item.kind], keys)
    return Pruned(len(keys), "" if len(keys) >= item.limit and not item.dry_run else None)


async def _prune_messages(unit: Unit, item: Prune, before: int) -> Pruned:
    """Go on from an address for as far as the limit reaches."""
    count = 0
    after = item.after
    addresses = await unit.all(SELECT_ADDRESSES, after, ADDRESSES)
    for address, handled_seq in addresses:
        old = await _old_messages(unit, address, handled_seq, before, item.limit - count)
        count += len(old)
        if not item.dry_run:
            await unit.change(DELETE_MESSAGES, address, old)
        if count >= item.limit:
            return Pruned(count, None if item.dry_run else after)
        after = address
    return Pruned(count, after if len(addresses) == ADDRESSES else None)


async def _old_messages(unit: Unit, address: str, handled_seq: int, before: int, limit: int) -> list[int]:
    """Places of handled and dropped messages at an address's front. Dead letters are passed over: they wait for an operator.

    The first handled one that is too young ends it: those behind it are younger.
    """
    old: list[int] = []
    for seq, status, age in await unit.all(SELECT_SETTLED, address, handled_seq):
        if status == DEAD:
            continue
        if age < before:
            old.append(seq)
            if len(old) == limit:
                break
        elif status in (QUEUED, HANDLED):
            break
    return old
