"""Callbacks: one answer from outside, by whoever holds a token, before or after somebody waits for it (K05)."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import anyio

from greenroom.errors import WaitTimeout
from greenroom.mailbox import Slot
from greenroom.persistence import (
    CallbackStatus,
    CreateCallback,
    ExpireCallback,
    ReadCallback,
    Refused,
    new_id,
    new_token,
)
from greenroom.runtime.callback import Callback, check_callback

if TYPE_CHECKING:
    from greenroom.runtime.durable.custody import Custody
    from greenroom.runtime.durable.storage import Storage

SHORTEST = 0.001
"""Seconds between looks at a callback whose time has passed by the clock here, and perhaps not by the store's."""


class CallbackWaits:
    """The callbacks that are waited for in this runtime."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: dict[Slot, str] = {}

    async def open(self, custody: Custody, name: str, message_id: str | None, *, timeout: float | None) -> Callback:
        """Open a callback, or one more token for the one that the same message's handler has opened under that name before."""
        check_callback(name, timeout)
        scope = new_id() if message_id is None else f"{custody.address}\n{message_id}\n{name}"
        callback_id = sha256(scope.encode()).hexdigest()[:32]
        token, secret_digest = new_token(callback_id)
        answer = await custody.own_commit(
            CreateCallback(
                **custody.owner,
                callback_id=callback_id,
                secret_digest=secret_digest,
                name=name,
                expires_at=None if timeout is None else self._storage.in_seconds(timeout),
            )
        )
        if isinstance(answer, Refused):
            raise custody.is_lost(answer.detail)
        return Callback(name, token, custody.address, partial(self.wait, custody.address, callback_id, name, timeout))

    async def wait(self, address: str, callback_id: str, name: str, timeout: float | None) -> Any:
        """As `Callback.wait`."""
        storage = self._storage
        store, what = storage.store, f"the answer to the callback {name!r} of {address!r}"
        while True:
            slot = storage.loop.slot()
            self._waiting[slot] = address  # before the look, so that an answer that comes meanwhile is not missed
            try:
                record = await storage.surely(store.read, ReadCallback(callback_id=callback_id))
                if record is None or record.status in (CallbackStatus.EXPIRED, CallbackStatus.CANCELLED):
                    raise WaitTimeout(what, timeout)
                if record.status is CallbackStatus.ANSWERED:
                    assert record.answer is not None
                    return storage.payloads.decode(await storage.fetch(record.answer), what)
                pause = storage.source.sweep_for(storage.loop)
                if record.expires_at is not None:
                    pause = min(pause, (record.expires_at - storage.now()).total_seconds())
                if pause <= 0:
                    await storage.surely(store.commit, ExpireCallback(callback_id=callback_id))
                    pause = SHORTEST
                with anyio.move_on_after(pause):
                    await slot
            finally:
                self._waiting.pop(slot, None)

    def look(self, addresses: frozenset[str] | None = None) -> None:
        """Something has happened at these addresses (None: anywhere): look again."""
        for slot, address in tuple(self._waiting.items()):
            if (addresses is None or address in addresses) and not slot.done():
                slot.set_result(None)
