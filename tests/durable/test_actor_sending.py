"""What a durable actor's handler sends: to whom it goes, under which identity, how often, and when there is no room."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import anyio
from attrs import frozen

import greenroom as gr
from greenroom.persistence import INLINE_LIMIT, Content, ListObservations, MessageStatus, ObservationKind
from tests.durable.helpers import Boom, raised, settled
from tests.durable.puppets import Do, Listener, Look, Puppet, Script, mail_of, record_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from tests.durable.helpers import Shared

PATH = "service/puppet"
OTHER = "service/other"


@frozen
class Introduce(gr.Message[None]):
    """A message that holds refs."""

    friends: tuple[gr.Ref, ...]


def puppets(script: Script, *names: str) -> list[gr.Child]:
    return [gr.Child(name, Puppet, script) for name in names or ("puppet", "other")]


def sending(*what: str, to: str = OTHER) -> Callable[[Puppet], Coroutine[Any, Any, None]]:
    """A step that sends these, in order."""

    async def step(puppet: Puppet) -> None:
        for word in what:
            await puppet.context.runtime.ref(to).send(Do(word))

    return step


def failing(times: int, step: Callable[[Puppet], Awaitable[object]]) -> Callable[[Puppet], Awaitable[object]]:
    """A step that crashes the first few times, when it has done everything."""
    left = [times]

    async def run(puppet: Puppet) -> object:
        result = await step(puppet)
        if left[0]:
            left[0] -= 1
            raise Boom
        return result

    return run


# ------------------------------------------------------------------------------------------------- to the store


async def test_r25_messages_of_one_handler_arrive_in_the_order_in_which_it_sent_them(database: Shared) -> None:
    async with database.runtime(*puppets({"go": sending("a", "b", "c")})) as runtime:
        await runtime.ref(PATH).ask(Do("go"), message_id="m")
        assert await runtime.ref(OTHER).ask(Look()) == ("a", "b", "c")
        async with database.open() as store:
            mail = [m for m in await mail_of(store, OTHER) if m.sender == PATH]
        assert [m.message_id for m in mail] == [f"{PATH}|m|0", f"{PATH}|m|1", f"{PATH}|m|2"]


async def test_r25_send_in_a_handler_returns_none_at_once(database: Shared) -> None:
    receipts: list[object] = []

    async def step(puppet: Puppet) -> None:
        receipts.append(await puppet.context.runtime.ref(OTHER).send(Do("x")))

    async with database.runtime(*puppets({"go": step})) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
    assert receipts == [None]


async def test_r25_a_message_id_of_the_senders_own_is_kept(database: Shared) -> None:
    async def step(puppet: Puppet) -> None:
        await puppet.context.runtime.ref(OTHER).send(Do("x"), message_id="mine")

    async with database.runtime(*puppets({"go": step})) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
        await runtime.ref(PATH).ask(Do("go"))
        assert await runtime.ref(OTHER).ask(Look()) == ("x",)
        async with database.open() as store:
            observed = await store.read(ListObservations(address=OTHER))
        assert [o.kind for o in observed] == [ObservationKind.DUPLICATE]


async def test_r25_a_handler_that_runs_again_makes_no_doubles(database: Shared) -> None:
    """Not even when its first run has sent something that the store had to take before the commit: an answer to an ask."""

    async def step(puppet: Puppet) -> object:
        await puppet.context.runtime.ref(OTHER).send(Do("sent"))
        return await puppet.context.runtime.ref(OTHER).ask(Do("asked"))

    answers = iter([1, 2, 3])

    async def answer(puppet: Puppet) -> object:
        return next(answers)

    async with database.runtime(*puppets({"go": failing(2, step), "asked": answer})) as runtime:
        assert await runtime.ref(PATH).ask(Do("go"), timeout=None) == 1
        assert await runtime.ref(OTHER).ask(Look()) == ("asked", "sent")


async def test_r25_each_ask_of_a_handler_has_an_identity_of_its_own(database: Shared) -> None:
    async def step(puppet: Puppet) -> list[object]:
        other = puppet.context.runtime.ref(OTHER)
        return [await other.ask(Do("asked")), await other.ask(Do("asked"))]

    numbers = iter(range(10))

    async def answer(puppet: Puppet) -> object:
        return next(numbers)

    async with database.runtime(*puppets({"go": failing(1, step), "asked": answer})) as runtime:
        assert await runtime.ref(PATH).ask(Do("go"), timeout=None) == [0, 1]


async def test_a_delayed_message_of_a_handler_comes_at_its_time(database: Shared) -> None:
    async def step(puppet: Puppet) -> None:
        at = database.time.now() + timedelta(seconds=100)
        await puppet.context.runtime.ref(OTHER).send(Do("later"), deliver_at=at)

    async with database.runtime(*puppets({"go": step})) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
        await anyio.sleep(99)
        assert await runtime.ref(OTHER).ask(Look()) == ()
        await anyio.sleep(1.1)
        assert await runtime.ref(OTHER).ask(Look()) == ("later",)


async def test_r31_large_messages_go_by_way_of_the_content_store(database: Shared) -> None:
    large = "x" * (2 * INLINE_LIMIT)

    async def step(puppet: Puppet) -> str:
        await puppet.context.runtime.ref(OTHER).send(Do(large))
        puppet.context.after(10, Do(large))
        return large

    async with database.runtime(*puppets({"go": step})) as runtime:
        assert await runtime.ref(PATH).ask(Do("go")) == large
        await anyio.sleep(11)
        assert await runtime.ref(OTHER).ask(Look()) == (large,)
        assert await runtime.ref(PATH).ask(Look()) == ("go", large)
        async with database.open() as store:
            assert [isinstance(m.body, Content) for m in await mail_of(store, OTHER)] == [True, False]


async def test_refs_travel_in_messages(database: Shared) -> None:
    class Host(gr.DurableActor[tuple[str, ...]]):
        def __init__(self) -> None:
            self.state = ()

        @gr.handles
        async def introduce(self, message: Introduce) -> None:
            self.state = tuple(friend.path for friend in message.friends)
            for friend in message.friends:
                await friend.send(Do("hello"))

    async with database.runtime(gr.Child("host", Host), *puppets({})) as runtime:
        await runtime.ref("service/host").ask(Introduce((runtime.ref(PATH), runtime.ref(OTHER))))
        assert await runtime.ref(OTHER).ask(Look()) == ("hello",)


async def test_r25_a_message_to_an_address_that_has_ended_is_kept_as_an_observation(database: Shared) -> None:
    async def end(puppet: Puppet) -> None:
        puppet.context.stop()

    children = (
        gr.Child("puppet", Puppet, {"go": sending("x")}),
        gr.Child("other", Puppet, {"end": end}, restart="transient"),
    )
    async with database.runtime(*children) as runtime:
        await runtime.ref(OTHER).ask(Do("end"))
        await settled()
        await runtime.ref(PATH).ask(Do("go"))
        async with database.open() as store:
            (observed,) = await store.read(ListObservations(address=OTHER))
    assert (observed.kind, observed.sender) == (ObservationKind.LATE, PATH)


async def test_r25_a_message_that_cannot_be_stored_fails_where_it_is_sent(database: Shared) -> None:
    found: list[BaseException] = []

    async def step(puppet: Puppet) -> None:
        found.append(await raised(puppet.context.runtime.ref(OTHER).send(Unstorable(object()))))

    async with database.runtime(*puppets({"go": step})) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
    assert isinstance(found[0], gr.NotEncodable)


@frozen
class Unstorable(gr.Message[None]):
    what: object


async def test_what_a_handlers_own_tasks_send_leaves_at_once(database: Shared) -> None:
    """Only the handler's own event-loop task is part of its transaction."""

    async def step(puppet: Puppet) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(sending("x"), puppet)
        raise gr.Rejected("no")

    async with database.runtime(*puppets({"go": step})) as runtime:
        assert isinstance(await raised(runtime.ref(PATH).ask(Do("go"))), gr.Rejected)
        assert await runtime.ref(OTHER).ask(Look()) == ("x",)


# ------------------------------------------------------------------------------------------------ to actors in memory


async def test_r25_tells_to_actors_in_memory_leave_after_the_commit_in_order(database: Shared) -> None:
    heard: list[str] = []

    async def step(puppet: Puppet) -> None:
        listener = puppet.context.runtime.ref("service/listener")
        listener.tell(Do("first"))
        assert await listener.send(Do("second")) is None
        await anyio.sleep(10)
        assert heard == []

    async with database.runtime(gr.Child("listener", Listener, heard), *puppets({"go": step})) as runtime:
        await runtime.ref(PATH).ask(Do("go"), timeout=60)
        await settled()
    assert heard == ["first", "second"]


async def test_r25_a_handler_that_runs_again_has_told_nothing_before(database: Shared) -> None:
    heard: list[str] = []

    async def step(puppet: Puppet) -> None:
        puppet.context.runtime.ref("service/listener").tell(Do("told"))

    async with database.runtime(gr.Child("listener", Listener, heard), *puppets({"go": failing(2, step)})) as runtime:
        await runtime.ref(PATH).ask(Do("go"), timeout=None)
        await settled()
    assert heard == ["told"]


async def test_an_ask_of_an_actor_in_memory_leaves_at_once(database: Shared) -> None:
    heard: list[str] = []

    async def step(puppet: Puppet) -> object:
        return await puppet.context.runtime.ref("service/listener").ask(Do("asked"))

    async with database.runtime(gr.Child("listener", Listener, heard), *puppets({"go": step})) as runtime:
        assert await runtime.ref(PATH).ask(Do("go")) == 1


async def test_an_actor_cannot_ask_itself(database: Shared) -> None:
    found: list[BaseException] = []

    async def step(puppet: Puppet) -> None:
        found.append(await raised(puppet.context.ref.ask(Look())))

    async with database.runtime(*puppets({"go": step})) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
    assert isinstance(found[0], gr.WouldDeadlock)


# -------------------------------------------------------------------------------------------------------------- room


class Slow(Puppet):
    """Takes an hour for each message."""

    @gr.handles
    async def do(self, message: Do) -> None:
        await anyio.sleep(3600)
        await super().do(message)


async def test_r25_own_messages_without_room_are_held_in_order_and_hold_back_the_next(database: Shared) -> None:
    small = gr.PersistentMailbox(capacity=2)
    children = (
        gr.Child("puppet", Puppet, {"go": sending("1", "2", "3", "4")}),
        gr.Child("other", Slow, {}, mailbox=small),
    )
    # The clock of leases goes with the virtual one: nobody must lose his in these hours.
    async with database.runtime(*children, source=database.source(lease=1e6)) as runtime:
        puppet = runtime.ref(PATH)
        assert await puppet.ask(Do("go")) is None
        await puppet.send(Do("next"))
        await anyio.sleep(10)
        async with database.open() as store:
            assert (await record_of(store, PATH)).held == 2
            assert [m.status for m in await mail_of(store, PATH)][-1] is MessageStatus.QUEUED
            await anyio.sleep(3600 * 2)
            assert (await record_of(store, PATH)).held == 0
        assert await puppet.ask(Look()) == ("go", "next")
        await anyio.sleep(3600 * 2)
        assert await runtime.ref(OTHER).ask(Look()) == ("1", "2", "3", "4")


async def test_r25_capacity_refuses_outside_senders(database: Shared) -> None:
    small = gr.PersistentMailbox(capacity=1)
    async with database.runtime(gr.Child("other", Slow, {}, mailbox=small)) as runtime:
        await runtime.ref(OTHER).send(Do("1"))
        error = await raised(runtime.ref(OTHER).send(Do("2")))
        assert isinstance(error, gr.MailboxFull)
        async with database.open() as store:
            assert len(await mail_of(store, OTHER)) == 1


async def test_r25_an_actor_never_waits_for_room_in_its_own_mailbox(database: Shared) -> None:
    """It would wait for itself: what it sends itself has room beyond the capacity."""
    step = sending("a", "b", "c", to=PATH)
    children = (gr.Child("puppet", Puppet, {"go": step}, mailbox=gr.PersistentMailbox(capacity=1)),)
    async with database.runtime(*children) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
        await settled()
        assert await runtime.ref(PATH).ask(Look()) == ("go", "a", "b", "c")
        async with database.open() as store:
            assert (await record_of(store, PATH)).held == 0


async def test_r25_an_actor_that_is_held_back_stops_when_it_is_asked_to(database: Shared) -> None:
    small = gr.PersistentMailbox(capacity=1)
    script: Script = {"go": sending("1", "2")}
    # First started, last stopped: the recipient would make room only in an hour.
    children = (
        gr.Child("puppet", Puppet, script, shutdown=60.0),
        gr.Child("other", Slow, script, mailbox=small, shutdown="kill"),
    )
    async with database.runtime(*children) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
        await runtime.ref(PATH).send(Do("next"))
        await settled()
    assert runtime.report is not None
    assert PATH in runtime.report.stopped
    assert runtime.report.seconds < 1
    async with database.open() as store:
        assert (await record_of(store, PATH)).held == 1
        (message,) = [m for m in await mail_of(store, PATH) if m.status is MessageStatus.QUEUED]
        assert message.deliveries == 0


async def test_r25_held_messages_reach_a_recipient_that_has_room_after_a_restart(database: Shared) -> None:
    small = gr.PersistentMailbox(capacity=1)
    script: Script = {"go": sending("1", "2", "3")}
    async with database.runtime(
        gr.Child("puppet", Puppet, script), gr.Child("other", Slow, script, mailbox=small)
    ) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
        await runtime.ref(PATH).send(Do("next"))
    async with database.runtime(
        gr.Child("puppet", Puppet, script), gr.Child("other", Puppet, script, mailbox=small)
    ) as runtime:
        await settled()
        assert await runtime.ref(OTHER).ask(Look()) == ("1", "2", "3")
        assert await runtime.ref(PATH).ask(Look()) == ("go", "next")


def unhurried(seen: list[tuple[str, float]], *words: str) -> Script:
    """The recipient's: each word takes it a hundred seconds."""

    def step_of(word: str) -> Callable[[Puppet], Awaitable[None]]:
        async def step(puppet: Puppet) -> None:
            await anyio.sleep(100)
            seen.append((word, anyio.current_time()))

        return step

    return {word: step_of(word) for word in words}


async def test_r25_held_messages_are_brought_as_room_comes_though_their_sender_has_nothing_else_to_do(
    database: Shared,
) -> None:
    seen: list[tuple[str, float]] = []
    script: Script = {"go": sending("1", "2", "3"), **unhurried(seen, "1", "2", "3")}
    small = gr.PersistentMailbox(capacity=1)
    async with database.runtime(
        gr.Child("puppet", Puppet, script), gr.Child("other", Puppet, script, mailbox=small)
    ) as runtime:
        begun = anyio.current_time()
        await runtime.ref(PATH).ask(Do("go"))
        await anyio.sleep(350)
    assert seen == [("1", begun + 100), ("2", begun + 200), ("3", begun + 300)]


async def test_r25_the_same_after_a_restart_while_there_is_no_room(database: Shared) -> None:
    seen: list[tuple[str, float]] = []
    script: Script = {"go": sending("1", "2", "3"), **unhurried(seen, "1", "2", "3")}
    children = (
        gr.Child("puppet", Puppet, script),
        gr.Child("other", Puppet, script, mailbox=gr.PersistentMailbox(capacity=1), shutdown="kill"),
    )
    async with database.runtime(*children) as runtime:
        await runtime.ref(PATH).ask(Do("go"))
    begun = anyio.current_time()
    async with database.runtime(*children):
        await anyio.sleep(350)
    assert seen == [("1", begun + 100), ("2", begun + 200), ("3", begun + 300)]
