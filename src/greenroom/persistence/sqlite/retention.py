"""How SQLite forgets."""

from __future__ import annotations

from typing import Final

from greenroom.persistence.retention import Prunable, Prune, Pruned
from greenroom.persistence.sqlite.mail import DEAD, HANDLED, QUEUED
from greenroom.persistence.sqlite.unit import Unit

ADDRESSES: Final = 100
"""Addresses that one pruning of messages looks at, at most."""

# Old rows of the kinds that are forgotten by one column; the second parameter is the limit.
OLD: Final = {
    Prunable.OBSERVATIONS: "SELECT id FROM observations WHERE at < ? ORDER BY at LIMIT ?",
    Prunable.CALLBACKS: (
        "SELECT callback_id FROM callbacks WHERE status <> 'open' AND settled_at < ? ORDER BY settled_at LIMIT ?"
    ),
    Prunable.OUTBOX: "SELECT rowid FROM outbox WHERE status = 'sent' AND settled_at < ? ORDER BY settled_at LIMIT ?",
    Prunable.EXECUTIONS: (
        "SELECT execution_id FROM executions WHERE state = 'ended' AND ended_at < ? "
        "AND NOT EXISTS (SELECT 1 FROM addresses WHERE owner = executions.execution_id) LIMIT ?"
    ),
    Prunable.BATCHES: "SELECT batch_id FROM batches WHERE at < ? ORDER BY at LIMIT ?",
    Prunable.CONTENT: (
        "SELECT c.digest FROM content AS c WHERE c.chunk = 0 AND c.kept_at < ? "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE body_content = c.digest) "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE reply_content = c.digest) "
        "AND NOT EXISTS (SELECT 1 FROM messages WHERE error_content = c.digest) "
        "AND NOT EXISTS (SELECT 1 FROM addresses WHERE state_content = c.digest) "
        "AND NOT EXISTS (SELECT 1 FROM outbox WHERE body_content = c.digest) "
        "AND NOT EXISTS (SELECT 1 FROM callbacks WHERE answer_content = c.digest) "
        "AND NOT EXISTS (SELECT 1 FROM observations WHERE body_content = c.digest) LIMIT ?"
    ),
}
# One of those rows.
DELETE: Final = {
    Prunable.OBSERVATIONS: "DELETE FROM observations WHERE id = ?",
    Prunable.CALLBACKS: "DELETE FROM callbacks WHERE callback_id = ?",
    Prunable.OUTBOX: "DELETE FROM outbox WHERE rowid = ?",
    Prunable.EXECUTIONS: "DELETE FROM executions WHERE execution_id = ?",
    Prunable.BATCHES: "DELETE FROM batches WHERE batch_id = ?",
    Prunable.CONTENT: "DELETE FROM content WHERE digest = ?",
}
# Observations of senders that have more than their share, all but the newest.
SELECT_TOO_MANY = (
    "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY sender ORDER BY id DESC) AS place FROM observations "
    "WHERE sender IS NOT NULL) WHERE place > ? LIMIT ?"
)
# The next addresses, with how far their messages are handled.
SELECT_ADDRESSES = "SELECT address, handled_seq FROM addresses WHERE address > ? ORDER BY address LIMIT ?"
# Settled messages of an address, in order.
SELECT_SETTLED = (
    "SELECT seq, status, coalesce(settled_at, delivered_at, accepted_at) FROM messages "
    "WHERE address = ? AND seq > 0 AND seq <= ? ORDER BY seq"
)
# One message.
DELETE_MESSAGE = "DELETE FROM messages WHERE address = ? AND seq = ?"


def prune(unit: Unit, item: Prune) -> Pruned:
    before = unit.now - round(item.age.total_seconds() * 1e6)
    if item.kind is Prunable.MESSAGES:
        return _prune_messages(unit, item, before)
    keys = [key for (key,) in unit.execute(OLD[item.kind], (before, item.limit)).fetchall()]
    if item.kind is Prunable.OBSERVATIONS and item.per_sender is not None and len(keys) < item.limit:
        rest = unit.execute(SELECT_TOO_MANY, (item.per_sender, item.limit - len(keys))).fetchall()
        keys += {key for (key,) in rest} - set(keys)
    if not item.dry_run:
        for key in keys:
            unit.execute(DELETE[item.kind], (key,))
            if item.kind is Prunable.EXECUTIONS and unit.locks is not None:
                unit.locks.forget(key)
    return Pruned(len(keys), "" if len(keys) >= item.limit and not item.dry_run else None)


def _prune_messages(unit: Unit, item: Prune, before: int) -> Pruned:
    """Go on from an address for as far as the limit reaches."""
    count = 0
    after = item.after
    addresses = unit.execute(SELECT_ADDRESSES, (after, ADDRESSES)).fetchall()
    for address, handled_seq in addresses:
        old = _old_messages(unit, address, handled_seq, before, item.limit - count)
        count += len(old)
        if not item.dry_run:
            for seq in old:
                unit.execute(DELETE_MESSAGE, (address, seq))
        if count >= item.limit:
            return Pruned(count, None if item.dry_run else after)
        after = address
    return Pruned(count, after if len(addresses) == ADDRESSES else None)


def _old_messages(unit: Unit, address: str, handled_seq: int, before: int, limit: int) -> list[int]:
    """Places of handled and dropped messages at an address's front. Dead letters are passed over: they wait for an operator.

    The first handled one that is too young ends it: those behind it are younger.
    """
    old: list[int] = []
    for seq, status, age in unit.execute(SELECT_SETTLED, (address, handled_seq)):
        if status == DEAD:
            continue
        if age < before:
            old.append(seq)
            if len(old) == limit:
                break
        elif status in (QUEUED, HANDLED):
            break
    return old
