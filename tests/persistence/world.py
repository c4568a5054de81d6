"""What random commands look at: the state of a reference database, and the numbers that choose what is left open."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from attrs import define, frozen

from tests.persistence.stores import SteeredClock

ADDRESSES = ("a", "b", "c")
CALLBACKS = ("c1", "c2")
SECRETS = ("s1", "s2", "s3")


@frozen
class Command:
    """A kind, and numbers that choose what is left open."""

    kind: str
    numbers: tuple[int, ...]


@define
class World:
    """The reference's state, as far as commands look at it, and the numbers of one command."""

    connection: sqlite3.Connection
    time: SteeredClock
    serial: int = 0
    numbers: tuple[int, ...] = ()
    used: int = 0

    def pick(self, count: int) -> int:
        """The next number, below `count`."""
        number = self.numbers[self.used % len(self.numbers)] + self.used // len(self.numbers)
        self.used += 1
        return number % count

    def now(self) -> int:
        return self.time.store_clock.now()

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.pick(len(options))]

    def fresh(self) -> str:
        self.serial += 1
        return f"m{self.serial}"

    def one(self, sql: str, *parameters: object) -> Any:
        row = self.connection.execute(sql, parameters).fetchone()
        return None if row is None else row[0]

    def column(self, sql: str, *parameters: object) -> list[Any]:
        return [value for (value,) in self.connection.execute(sql, parameters)]

    def execution(self) -> str:
        """An execution: mostly one that is active."""
        known = self.column("SELECT execution_id FROM executions ORDER BY started_at DESC, execution_id")
        active = self.column(
            "SELECT execution_id FROM executions WHERE state = 'active' ORDER BY lease_until DESC LIMIT 3"
        )
        execution_id: str = self.choose(active) if active and self.pick(8) else self.choose([*known, "e0"])
        return execution_id

    def lost(self) -> str:
        """An execution: mostly one whose lease has passed."""
        boot = round(self.time.store_clock.boot() * 1e6)
        lost = self.column("SELECT execution_id FROM executions WHERE state <> 'ended' AND lease_until <= ?", boot)
        return self.choose(lost) if lost and self.pick(8) else self.execution()

    def fence(self, address: str) -> dict[str, Any]:
        """Who writes to an address: mostly its owner, now and then somebody who is it no more."""
        generation = self.one("SELECT generation FROM addresses WHERE address = ?", address) or 1
        owner = self.one("SELECT owner FROM addresses WHERE address = ?", address) or self.execution()
        stale = self.pick(12)
        return {
            "address": address,
            "execution_id": self.execution() if stale == 1 else owner,
            "generation": generation - 1 if stale == 0 else generation,
        }

    def busy(self, *, in_hand: bool) -> str:
        """An address: mostly one with an owner and something to deliver, or in hand."""
        busy = self.column(
            "SELECT DISTINCT a.address FROM addresses AS a JOIN messages AS m USING (address) WHERE a.owner IS NOT NULL "
            "AND m.status = 'queued' AND m.seq > a.handled_seq AND (m.deliveries > 0) >= ? ORDER BY 1",
            in_hand,
        )
        address: str = self.choose(busy) if busy and self.pick(10) else self.choose(ADDRESSES)
        return address

    def place(self, address: str, *, in_hand: bool) -> int:
        """A place of a mailbox: mostly one where a message waits, or is in hand."""
        places = self.column(
            "SELECT m.seq FROM messages m JOIN addresses a USING (address) WHERE address = ? AND m.seq > a.handled_seq "
            "AND m.status = 'queued' AND (m.deliveries > 0) >= ? ORDER BY m.seq",
            address,
            in_hand,
        )
        wrong = self.pick(12)
        return self.choose(places) if places and wrong else 1 + wrong

    def known_message(self, address: str) -> str:
        known = self.column("SELECT message_id FROM messages WHERE address = ? ORDER BY message_id", address)
        return self.choose(known) if known else "m0"

    def dead_message(self, address: str) -> str:
        dead = self.column(
            "SELECT message_id FROM messages WHERE address = ? AND status = 'dead' ORDER BY seq", address
        )
        return self.choose(dead) if dead and self.pick(6) else self.known_message(address)

    def moment(self) -> Any:
        """None, an instant that is past, or one to come."""
        seconds = self.choose((None, None, None, -5.0, 5.0, 15.0))
        return None if seconds is None else self.time.at(seconds)
