"""Durable actors that wait for each other's room, and always will.

What a handler sends to a full mailbox is held, and holds back its actor's next message (R25). When the recipient holds messages, too,
for a third, and the last of them for the first, then none of them handles anything that would make room. Only more room does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import frozen

from greenroom.actors import Event
from greenroom.logs import logger_named
from greenroom.persistence import Held, HeldForHolders

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.storage")

PAGE = 1000

Ring = tuple[str, ...]
"""Addresses, each of which holds messages for the next one, and the last for the first."""


@frozen(kw_only=True)
class Standstill(Event):
    """Durable actors hold messages for each other, have no room for any, and handle nothing any more. `path` is the first of them.

    Give one of them more room (`capacity`), by a new start of its tree; the mail of all of them stays where it is.
    """

    addresses: tuple[str, ...]
    """Each waits for room at the next one, and the last at the first."""


def rings(held: Iterable[Held]) -> frozenset[Ring]:
    """Who waits for each other: at least one ring of each crowd that does, told from its first member on."""
    ahead: defaultdict[str, set[str]] = defaultdict(set)
    for each in held:
        ahead[each.address].add(each.recipient)
    while free := {recipient for recipients in ahead.values() for recipient in recipients} - ahead.keys():
        for address in tuple(ahead):
            ahead[address] -= free  # they will have room
            if not ahead[address]:
                del ahead[address]
    found: set[Ring] = set()
    passed: set[str] = set()
    for start in sorted(ahead):
        way: list[str] = []
        here = start
        while here not in passed:
            passed.add(here)
            way.append(here)
            here = min(ahead[here])
        if here in way:
            ring = way[way.index(here) :]
            first = ring.index(min(ring))
            found.add((*ring[first:], *ring[:first]))
    return frozenset(found)


class Standstills:
    """Looks for them, as a duty of the sweep, and tells of each once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._seen: frozenset[Ring] = frozenset()
        """At the last look. One that is seen once may be about to pass: what is in hand just now may make room."""
        self._told: frozenset[Ring] = frozenset()

    async def look(self) -> None:
        """Raises `StoreUnavailable`."""
        held = [Held("", "")]
        while page := await self._storage.store.read(HeldForHolders(after=held[-1], limit=PAGE)):
            held += page
        found = rings(held[1:])
        lasting = found & self._seen
        for ring in sorted(lasting - self._told):
            self._tell(ring)
        self._seen, self._told = found, lasting

    def _tell(self, ring: Ring) -> None:
        logger.error(
            "%s hold messages for each other and have no room: they stand still until one is given more (capacity)",
            ", ".join(ring),
        )
        services = self._storage.services
        services.events.publish(Standstill(at=self._storage.loop.now(), path=ring[0], addresses=ring))
