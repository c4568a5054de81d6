"""Which signal goes to which receiver, and who waits for which answer (T21). Derived from arrival rows and calls alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from greenroom.runtime.replay.rows import SignalRow

W = TypeVar("W")

CALLBACK_KEY: Final = "callback "
"""With that the keys begin under which the answers to callbacks come."""


class Waiting(Generic[W]):
    """Who waits under which names, in the order of their calls. `W` is whatever stands for a wait."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: dict[str, list[W]] = {}

    def add(self, names: Iterable[str], wait: W) -> None:
        """Register a wait, once under each name."""
        for name in names:
            self._names.setdefault(name, []).append(wait)

    def remove(self, names: Iterable[str], wait: W) -> None:
        for name in names:
            waits = self._names[name]
            waits.remove(wait)
            if not waits:
                del self._names[name]

    def under(self, name: str) -> tuple[W, ...]:
        return tuple(self._names.get(name, ()))

    @property
    def any(self) -> bool:
        """Somebody waits."""
        return bool(self._names)

    def names(self) -> tuple[str, ...]:
        """Under which somebody waits."""
        return tuple(self._names)

    def first(self, name: str) -> W | None:
        waits = self._names.get(name)
        return waits[0] if waits else None


class Signals(Generic[W]):
    """Unread signals, answers, and those who wait for either."""

    __slots__ = ("_answers", "_asked", "_unread", "askers", "receivers")

    def __init__(self) -> None:
        self.receivers: Waiting[W] = Waiting()
        """By the types that they take."""
        self.askers: Waiting[W] = Waiting()
        """By the key whose answer they wait for."""
        self._unread: dict[str, deque[SignalRow]] = {}
        self._answers: dict[str, SignalRow] = {}
        self._asked: dict[str, None] = {}
        """Keys whose answers somebody has got."""

    @property
    def are_awaited(self) -> bool:
        """Somebody waits for a signal or an answer."""
        return self.receivers.any or self.askers.any

    def read(self, types: Iterable[str]) -> SignalRow | None:
        """Take the first unread signal of one of these types."""
        heads = [queue[0] for type_ in types if (queue := self._unread.get(type_))]
        if not heads:
            return None
        row = min(heads, key=lambda head: head.seq)
        queue = self._unread[row.type]
        queue.popleft()
        if not queue:
            del self._unread[row.type]
        return row

    def answer(self, key: str) -> SignalRow | None:
        """The answer under a key, if it has come. It stays for whoever asks again."""
        row = self._answers.get(key)
        if row is not None:
            self._asked[key] = None
        return row

    def arrive(self, row: SignalRow) -> tuple[W, ...]:
        """A row has come: who gets it, in the order of their calls. A signal has one reader, an answer as many as wait for it."""
        if row.answers is not None:
            self._answers.setdefault(row.answers, row)
            askers = self.askers.under(row.answers)
            if askers:
                self._asked[row.answers] = None
            return askers
        first = self.receivers.first(row.type)
        if first is None:
            self._unread.setdefault(row.type, deque()).append(row)
            return ()
        return (first,)

    def unread(self) -> tuple[SignalRow, ...]:
        """What nobody has received, in its order: signals, and answers to callbacks. The ends of children are kept with those."""
        signals = [row for queue in self._unread.values() for row in queue]
        answers = [row for key, row in self._answers.items() if key.startswith(CALLBACK_KEY) and key not in self._asked]
        return tuple(sorted((*signals, *answers), key=lambda row: row.seq))
