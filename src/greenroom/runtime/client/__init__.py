"""`Client`: a store from outside, without a tree. Whoever sends to durable addresses, submits tasks, or looks after them."""

from __future__ import annotations

from greenroom.runtime.client.looking import Addresses
from greenroom.runtime.client.messages import Messages
from greenroom.runtime.client.tasks import Tasks

__all__ = ["Client"]


class Client(Messages, Tasks, Addresses):
    """A store from outside: `async with gr.Client("sqlite:///service.db") as client: ...`, on asyncio or trio.

    It runs no tree and owns no address: what it sends is handled by the services that share the store, now or when they run
    again. Keep one open for as long as it is used; it is used on the event loop that entered it.

    Args:
        store: the URL that the services have.

    Raises, when it is entered:
        NoSuchStore: there is nothing at the URL; a client makes no database.
        BadStoreUrl: the URL will not do; one in memory cannot be shared.
        StoreUnavailable, IncompatibleStore: it does not answer, or is not for this code.
    All methods raise `StoreUnavailable` when the store does not answer.
    """
