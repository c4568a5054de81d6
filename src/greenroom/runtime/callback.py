"""`Callback`: one answer from outside, as durable actors and tasks wait for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from greenroom.actors import check_storable


class Callback:
    """An answer from outside, once. Got from `context.callback`, for the incarnation that opened it, or from `task.callback`."""

    __slots__ = ("_owner", "_wait", "name", "token")

    def __init__(self, name: str, token: str, owner: str, wait: Callable[[], Awaitable[Any]]) -> None:
        self.name = name
        self.token = token
        """Whoever knows it may answer: `client.answer(token, value)`. Nobody can guess it, and the store does not keep it."""
        self._owner = owner
        self._wait = wait

    def __repr__(self) -> str:
        return f"<Callback {self.name!r} of {self._owner}>"

    async def wait(self) -> Any:
        """The answer, as soon as it is there. Can be awaited again.

        Raises:
            WaitTimeout: it did not come in time, or the callback was cancelled.
            Undecodable: the answer is of a class that is not known here. (A task is parked instead.)
        """
        return await self._wait()


def check_callback(name: object, timeout: float | None) -> None:
    """Raise `ValueError` for what cannot be a callback's name or seconds."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"callback({name!r}): a callback has a name")
    check_storable(name, "the name of a callback")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: seconds above 0, or None for an answer that may come at any time")
