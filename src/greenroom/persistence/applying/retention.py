"""Forgetting."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.applying.mail import HANDLED, QUEUED
from greenroom.persistence.applying.unit import Unit
from greenroom.persistence.retention import Prunable, Prune, Pruned

NAMING: Final = (
    ("addresses", "state"),
    ("attempts", "error"),
    ("attempts", "result"),
    ("callbacks", "answer"),
    ("journal", "body"),
    ("journal", "params"),
    ("messages", "body"),
    ("messages", "error"),
    ("messages", "reply"),
    ("observations", "body"),
    ("operations", "params"),
    ("operations", "result"),
    ("outbox", "body"),
    ("tasks", "error"),
    ("tasks", "request"),
    ("tasks", "result"),
    ("tasks", "segment_request"),
)
"""Every column that may name a content, with its table."""

ADDRESSES: Final = 100
"""Addresses that one pruning of messages looks at, at most."""

# Keys of old rows of the kinds that are forgotten by one column; the second parameter is the limit.
OLD: Final = {
    Prunable.OBSERVATIONS: "SELECT id FROM observations WHERE at < $1 ORDER BY at LIMIT $2",
    Prunable.CALLBACKS: (
        "SELECT callback_id FROM callbacks WHERE status <> 'open' AND NOT undelivered AND settled_at < $1 ORDER BY settled_at LIMIT $2"
    ),
    Prunable.OUTBOX: (
        "SELECT address, ordinal FROM outbox WHERE status = 'sent' AND settled_at < $1 ORDER BY settled_at LIMIT $2"
    ),
    Prunable.EXECUTIONS: (
        "SELECT execution_id FROM executions WHERE state = 'ended' AND ended_at < $1 "
        "AND NOT EXISTS (SELECT 1 FROM addresses WHERE owner = executions.execution_id) LIMIT $2"
    ),
    Prunable.BATCHES: "SELECT batch_id FROM batches WHERE at < $1 ORDER BY at LIMIT $2",
    Prunable.CONTENT: (
        "SELECT digest FROM content WHERE chunk = 0 AND kept_at < $1 "
        + "".join(
            f"AND NOT EXISTS (SELECT 1 FROM {table} x WHERE x.{column}_size = content.size AND x.{column} = content.digest) "
            for table, column in NAMING
        )
        + "LIMIT $2"
    ),
}
# Rows of others are not waited for: they are forgotten the next time.
LOCK: Final = " FOR UPDATE SKIP LOCKED"
# One of those rows.
DELETE: Final = {
    Prunable.OBSERVATIONS: "DELETE FROM observations WHERE id = $1",
    Prunable.CALLBACKS: "DELETE FROM callbacks WHERE callback_id = $1",
    Prunable.OUTBOX: "DELETE FROM outbox WHERE address = $1 AND ordinal = $2",
    Prunable.EXECUTIONS: "DELETE FROM executions WHERE execution_id = $1",
    Prunable.BATCHES: "DELETE FROM batches WHERE batch_id = $1",
    Prunable.CONTENT: "DELETE FROM content WHERE digest = $1",
}
# Observations of senders that have more than their share, all but the newest.
SELECT_TOO_MANY: Final = (
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY sender ORDER BY id DESC) AS place FROM observations "
    "WHERE sender IS NOT NULL) ranked WHERE place > $1 LIMIT $2"
)
# The next addresses, with how far their messages are handled.
SELECT_ADDRESSES: Final = (
    "SELECT address, handled_seq FROM addresses WHERE address > $1 ORDER BY address LIMIT $2 FOR NO KEY UPDATE"
)
# Settled messages at an address's front, in order. Dead letters wait for an operator.
SELECT_SETTLED: Final = (
    "SELECT seq, status, coalesce(settled_at, delivered_at, accepted_at) FROM messages "
    "WHERE address = $1 AND seq > 0 AND seq <= $2 AND status <> 'dead' ORDER BY seq LIMIT $3"
)
# Tasks that ended long ago, and of which nothing is left to be done.
SELECT_OLD_TASKS: Final = (
    "SELECT t.address FROM tasks t WHERE t.ended_at < $1 "
    "AND NOT EXISTS (SELECT 1 FROM operations o WHERE o.status = 'unresolved' AND o.address = t.address) "
    "AND NOT EXISTS (SELECT 1 FROM addresses a WHERE a.address = t.address AND a.held > 0) ORDER BY t.ended_at LIMIT $2"
)
# One of them, unless somebody else has it in hand.
LOCK_ADDRESS: Final = "SELECT 1 FROM addresses WHERE address = $1 FOR UPDATE SKIP LOCKED"
# Some rows of its journal.
DELETE_ENTRIES: Final = (
    "DELETE FROM journal WHERE address = $1 AND (attempt, segment, seq) IN ("
    "SELECT attempt, segment, seq FROM journal WHERE address = $1 ORDER BY attempt, segment, seq LIMIT $2)"
)
# All else of it.
DELETE_TASK: Final = tuple(
    f"DELETE FROM {table} WHERE address = $1"
    for table in ("invocations", "operations", "attempts", "callbacks", "messages", "outbox", "tasks", "addresses")
)
# One message.
DELETE_MESSAGE: Final = "DELETE FROM messages WHERE address = $1 AND seq = $2"


async def prune(unit: Unit, item: Prune) -> Pruned:
    before = unit.now - round(item.age.total_seconds() * 1e6)
    if item.kind is Prunable.TASKS:
        return await _prune_tasks(unit, item, before)
    if item.kind is Prunable.MESSAGES:
        return await _prune_messages(unit, item, before)
    lock = "" if item.dry_run else LOCK
    keys = [tuple(key) for key in await unit.tx.all(OLD[item.kind] + lock, before, item.limit)]
    if item.kind is Prunable.OBSERVATIONS and item.per_sender is not None and len(keys) < item.limit:
        rest = await unit.tx.all(SELECT_TOO_MANY, item.per_sender, item.limit - len(keys))
        keys += sorted({tuple(key) for key in rest} - set(keys))
    if keys and not item.dry_run:
        await unit.tx.many(DELETE[item.kind], keys)
        if item.kind is Prunable.EXECUTIONS:
            for (execution_id,) in keys:
                unit.forget_proof(execution_id)
    return Pruned(len(keys), "" if len(keys) >= item.limit and not item.dry_run else None)


async def _prune_tasks(unit: Unit, item: Prune, before: int) -> Pruned:
    """Forget tasks, the rows of their journals first, for as far as the limit reaches."""
    old = await unit.tx.all(SELECT_OLD_TASKS, before, item.limit)
    if item.dry_run:
        return Pruned(len(old), None)
    count, room = 0, item.limit
    for (address,) in old:
        if not await unit.tx.all(LOCK_ADDRESS, address):
            continue
        deleted = await unit.tx.change(DELETE_ENTRIES, address, room)
        room -= deleted
        if room <= 0:
            return Pruned(count, "")
        for statement in DELETE_TASK:
            await unit.tx.change(statement, address)
        unit.forget_address(address)
        count += 1
    return Pruned(count, "" if len(old) == item.limit else None)


async def _prune_messages(unit: Unit, item: Prune, before: int) -> Pruned:
    """Go on from an address for as far as the limit reaches."""
    count = 0
    after = item.after
    addresses = await unit.tx.all(SELECT_ADDRESSES, after, ADDRESSES)
    for address, handled_seq in addresses:
        old = await _old_messages(unit, address, handled_seq, before, item.limit - count)
        count += len(old)
        if old and not item.dry_run:
            await unit.tx.many(DELETE_MESSAGE, [(address, seq) for seq in old])
        if count >= item.limit:
            return Pruned(count, None if item.dry_run else after)
        after = address
    return Pruned(count, after if len(addresses) == ADDRESSES else None)


async def _old_messages(unit: Unit, address: str, handled_seq: int, before: int, limit: int) -> list[int]:
    """Places of handled and dropped messages at an address's front.

    The first handled one that is too young ends it: those behind it are younger.
    """
    old: list[int] = []
    for seq, status, age in await unit.tx.all(SELECT_SETTLED, address, handled_seq, limit):
        if age < before:
            old.append(seq)
        elif status in (QUEUED, HANDLED):
            break
    return old
