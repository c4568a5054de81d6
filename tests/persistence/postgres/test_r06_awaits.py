"""R6: applying a batch awaits the statements of its transaction, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from random import Random
from typing import Any

from attrs import frozen

from greenroom.persistence.applying.appliers import APPLIERS
from greenroom.persistence.driver import Applied
from greenroom.persistence.ids import new_id
from greenroom.persistence.packing import batches
from greenroom.persistence.postgres.batch import Batch
from greenroom.persistence.postgres.session import Connection, set_time
from greenroom.persistence.transitions import Transition
from tests.persistence.postgres.help import opened, run
from tests.persistence.postgres.servers import Server, fresh_schema
from tests.persistence.sqlite.test_r09_oracle import one_by_one, random_commands
from tests.persistence.stores import SteeredClock


@frozen
class Statement:
    """What a connection was asked to do."""

    method: str
    arguments: tuple[Any, ...]


@frozen
class Stop:
    """Stops whoever awaits it, and shows what for."""

    statement: Statement

    def __await__(self) -> Generator[Statement, Any, Any]:
        return (yield self.statement)


class Puppet:
    """A connection that does nothing by itself: each call stops its caller until somebody sends it a result."""

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def call(*arguments: Any) -> Any:
            return await Stop(Statement(method, arguments))

        return call


async def by_hand(applying: Coroutine[Any, Any, Applied], connection: Connection) -> Applied:
    """Drive a batch from stop to stop, doing on a real connection what it stops for."""
    result: Any = None
    while True:
        try:
            stop: object = applying.send(result)
        except StopIteration as end:
            applied: Applied = end.value
            return applied
        assert isinstance(stop, Statement), f"it awaited {stop!r}"
        result = await getattr(connection, stop.method)(*stop.arguments)


def test_r06_applying_a_batch_of_any_kind_awaits_nothing_but_its_statements(postgres: Server) -> None:
    kinds: set[type[Any]] = set()
    puppet: Any = Puppet()
    random = Random(5)

    async def play(steps: Sequence[Transition[Any] | float], url: str) -> None:
        time = SteeredClock()
        waiting: list[Transition[Any]] = []
        async with opened(url, time.store_clock) as driver:
            connection = await driver._ready()
            for step in (*steps, 0.0):
                if isinstance(step, Transition):
                    waiting.append(step)
                    continue
                for items in batches(waiting, random.choice((1, 4))):
                    await set_time(connection, time.store_clock)
                    batch = Batch(puppet, new_id(), items, frozenset())
                    assert len((await by_hand(batch.apply(), connection)).answers) == len(items)
                    kinds.update(map(type, items))
                waiting.clear()
                time.pass_time(step)

    while kinds != set(APPLIERS):
        steps, _, _ = one_by_one(random_commands(random, 100))
        with fresh_schema(postgres) as url:
            run(play(steps, url))
