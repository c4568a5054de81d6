"""What a durable actor cannot do is refused, with the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import greenroom as gr
from greenroom.testing import fresh_store
from tests.durable.helpers import Shared, raised, settled
from tests.durable.puppets import Do, Log, Puppet, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from greenroom.actors import Isolation
    from greenroom.testing import VirtualClock

PATH = "service/puppet"


@pytest.fixture
def database(clock: VirtualClock) -> Iterator[Shared]:
    """What is refused here is refused before any database is asked: one kind will do."""
    with fresh_store() as url:
        yield Shared(url, clock)


async def refused(database: Shared, call: Callable[[Puppet], object]) -> str:
    """How a call in a handler is refused."""
    found: list[str] = []

    async def step(puppet: Puppet) -> None:
        with pytest.raises(gr.Misuse) as caught:
            call(puppet)
        found.append(str(caught.value))

    async with database.runtime(gr.Child("puppet", Puppet, {"go": step})) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
    (text,) = found
    assert PATH in text
    return text


async def test_every_is_refused_and_names_after(database: Shared) -> None:
    assert "`after`" in await refused(database, lambda puppet: puppet.context.every(1, Do("x")))


async def test_watch_is_refused_and_names_another_actor(database: Shared) -> None:
    assert "another actor" in await refused(database, lambda puppet: puppet.context.watch(puppet.context.ref))


async def test_stash_is_refused_and_names_send(database: Shared) -> None:
    assert "send it again" in await refused(database, lambda puppet: puppet.context.stash(Do("go")))


async def test_tell_is_refused_and_names_send(database: Shared) -> None:
    text = await refused(database, lambda puppet: puppet.context.ref.tell(Do("x")))
    assert "send" in text


class Eager(Puppet):
    """Does at its start what belongs into a handler."""

    def __init__(self, script: Script, call: Callable[[Puppet], object], found: list[str]) -> None:
        super().__init__(script)
        self.call, self.found = call, found

    async def on_start(self) -> None:
        with pytest.raises(gr.Misuse) as caught:
            self.call(self)
        self.found.append(str(caught.value))


@pytest.mark.parametrize(
    "call",
    [
        lambda puppet: puppet.context.after(1, Do("x")),
        lambda puppet: puppet.context.cancel("k"),
        lambda puppet: puppet.context.publish("d", Do("x")),
    ],
    ids=["after", "cancel", "publish"],
)
async def test_what_commits_with_a_handler_is_refused_elsewhere(
    database: Shared, call: Callable[[Puppet], object]
) -> None:
    found: list[str] = []
    async with database.runtime(gr.Child("puppet", Eager, {}, call, found)):
        await settled()
    (text,) = found
    assert "in a handler" in text
    assert "context.ref.send" in text


async def test_publish_is_refused_to_an_actor_that_is_not_durable(database: Shared) -> None:
    class Plain(gr.Actor):
        @gr.handles
        async def do(self, message: Do) -> object:
            self.context.publish("d", message)
            return None

    async with database.runtime(gr.Child("plain", Plain, restart="transient")) as runtime:
        error = await raised(runtime.ref("service/plain").ask(Do("x")))
    assert isinstance(error.__cause__, gr.Misuse)
    assert "gr.DurableActor" in str(error.__cause__)


def test_concurrent_handlers_are_refused_with_their_class() -> None:
    with pytest.raises(gr.BadHandler, match=r"Hasty\.do has concurrency=2"):

        class Hasty(gr.DurableActor[Log]):
            @gr.handles(concurrency=2)
            async def do(self, message: Do) -> object:
                return None


def test_plain_handlers_are_refused_with_their_class() -> None:
    with pytest.raises(gr.BadHandler, match=r"Blocking.*async def"):

        class Blocking(gr.DurableActor[Log]):
            @gr.handles
            def do(self, message: Do) -> object:
                return None


def test_a_durable_actor_cannot_have_a_mailbox_in_memory() -> None:
    with pytest.raises(gr.BadSpec, match="PersistentMailbox"):
        gr.Child("puppet", Puppet, {}, mailbox=gr.Mailbox(capacity=1))


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_durable_actor_runs_on_the_event_loop(isolation: Isolation) -> None:
    with pytest.raises(gr.BadSpec, match="isolation"):
        gr.Child("puppet", Puppet, {}, isolation=isolation)


def test_a_durable_actor_needs_a_store() -> None:
    with pytest.raises(gr.BadSpec, match="'service/puppet' keeps its messages in a store"):
        gr.Runtime(gr.Supervisor("service", gr.Child("puppet", Puppet, {})))


def test_c24_a_store_in_memory_needs_volatile() -> None:
    tree = gr.Supervisor("service", gr.DurableActors("puppets", Puppet, {}))
    with pytest.raises(gr.BadSpec, match="volatile=True"):
        gr.Runtime(tree, store="sqlite://:memory:")


async def test_a_factory_that_hides_a_durable_actor_is_refused_at_its_start(database: Shared) -> None:
    error = await raised(database.runtime(gr.Child("puppet", lambda: Puppet({}))).__aenter__())
    assert isinstance(error, gr.StartFailed)
    assert "gr.Child the class itself" in str(error.__cause__)


async def test_a_factory_that_hides_a_durable_actor_behind_a_persistent_mailbox_is_refused_too(
    database: Shared,
) -> None:
    child = gr.Child("puppet", lambda: Puppet({}), mailbox=gr.PersistentMailbox())
    error = await raised(database.runtime(child).__aenter__())
    assert isinstance(error, gr.StartFailed)
    assert "functools.partial" in str(error.__cause__)
