"""A durable actor's state: how it begins, is kept, restored and migrated, and what happens when it cannot be read (C23, K18)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import pytest
from attrs import define, field, frozen

import greenroom as gr
from greenroom.actors import state_type
from greenroom.codec import wire
from greenroom.persistence import (
    INLINE_LIMIT,
    AcceptMessage,
    AddressKind,
    Content,
    MessageStatus,
    OpenAddress,
    ParkReason,
    Refused,
    UnparkAddress,
    Unparked,
)
from greenroom.runtime.durable.payloads import Payloads
from tests.durable.helpers import Boom, raised, settled
from tests.durable.puppets import Do, Log, Look, Puppet, mail_of, record_of, tamper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.durable.helpers import Shared

T = TypeVar("T")
T2 = TypeVar("T2")

PATH = "service/puppet"


@frozen
class Get(gr.Message[Any]):
    """The reply is the state."""


@frozen
class Put(gr.Message[None]):
    """Replace the state."""

    what: Any


@frozen
class Push(gr.Message[int]):
    """Change the state in place, then do as `then` says."""

    what: str
    then: str = ""


@define
class Pile:
    """A state that is changed in place."""

    sheets: list[str] = field(factory=list)


class Keeper(gr.DurableActor[T]):
    """Keeps any state. Has no initial one of its own."""

    @gr.handles
    async def get(self, message: Get) -> Any:
        return self.state

    @gr.handles
    async def put(self, message: Put) -> None:
        self.state = message.what


class PileKeeper(Keeper[Pile]):
    @gr.handles
    async def push(self, message: Push) -> int:
        self.state.sheets.append(message.what)
        match message.then:
            case "reject":
                raise gr.Rejected("as you wished")
            case "stop":
                raise gr.Stop
            case "crash":
                raise Boom
        return len(self.state.sheets)


class Started(Keeper[Log]):
    """Its constructor makes the initial state."""

    def __init__(self, first: str = "first") -> None:
        self.state = Log((first,))


# -------------------------------------------------------------------------------------------------------- beginnings


async def test_a_new_actor_begins_with_the_state_that_its_constructor_made(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Log(("first",))


async def test_a_new_actor_without_a_state_gets_one_of_its_type(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Pile([])


async def test_a_stored_state_replaces_the_one_that_the_constructor_made(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("second",))))
    async with database.runtime(gr.Child("puppet", Started, "another first")) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Log(("second",))


async def test_nothing_is_stored_before_the_first_message_is_handled(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", Started)), database.open() as store:
        assert (await record_of(store, PATH)).state is None
    async with database.runtime(gr.Child("puppet", Started, "another first")) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Log(("another first",))


@frozen
class Demanding:
    """A state that cannot be made out of nothing."""

    needed: int


async def test_an_actor_without_any_initial_state_does_not_start(database: Shared) -> None:
    class Empty(Keeper[Demanding]):
        pass

    error = await raised(database.runtime(gr.Child("puppet", Empty)).__aenter__())
    assert isinstance(error, gr.StartFailed)
    assert "has no state to begin with: set `self.state` in its __init__" in str(error.__cause__)


async def test_an_initial_state_that_cannot_be_stored_fails_the_start(database: Shared) -> None:
    error = await raised(database.runtime(gr.Child("puppet", Started, object())).__aenter__())  # type: ignore[arg-type]
    assert isinstance(error, gr.StartFailed)
    assert isinstance(error.__cause__, gr.NotEncodable)
    assert "Log.lines[0]" in str(error.__cause__)


async def test_a_state_type_that_could_not_be_stored_fails_the_start(database: Shared) -> None:
    @define
    class Hidden:
        """Nobody could import it."""

    class Secretive(Keeper[Hidden]):
        pass

    error = await raised(database.runtime(gr.Child("puppet", Secretive)).__aenter__())
    assert isinstance(error, gr.StartFailed)
    assert isinstance(error.__cause__, gr.NotEncodable)


def test_the_state_type_is_found_through_generic_bases() -> None:
    class Pair(Keeper[T], Generic[T, T2]):
        pass

    class Boxed(Keeper[list[T]]):
        pass

    class OfBoth(Pair[Log, int]):
        pass

    class Heir(OfBoth):
        pass

    class OfBoxes(Boxed[Log]):
        pass

    class Anything(Keeper[Any]):
        pass

    assert [state_type(cls) for cls in (PileKeeper, OfBoth, Heir, OfBoxes)] == [Pile, Log, Log, list[Log]]
    assert [state_type(cls) for cls in (Keeper, Pair, Boxed, Anything, gr.DurableActor)] == [None] * 5


async def test_a_state_may_be_anything_that_messages_may_hold(database: Shared) -> None:
    class Plain(Keeper[dict[str, tuple[int, ...]]]):
        def __init__(self) -> None:
            self.state = {}

    async with database.runtime(gr.Child("puppet", Plain)) as runtime:
        await runtime.ref(PATH).ask(Put({"a": (1, 2)}))
    async with database.runtime(gr.Child("puppet", Plain)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == {"a": (1, 2)}


# ------------------------------------------------------------------------------------------------------------- keeping


async def test_a_state_that_is_changed_in_place_is_stored(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        assert await runtime.ref(PATH).ask(Push("a")) == 1
    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        assert await runtime.ref(PATH).ask(Push("b")) == 2
        assert await runtime.ref(PATH).ask(Get()) == Pile(["a", "b"])


@pytest.mark.parametrize("before", [0, 1], ids=["initial", "stored"])
async def test_r25_rejected_is_an_answer_and_leaves_the_state_as_it_was(database: Shared, before: int) -> None:
    """Also where it was changed in place, and nothing that was sent leaves."""
    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        puppet = runtime.ref(PATH)
        for _ in range(before):
            await puppet.ask(Push("a"))
        error = await raised(puppet.ask(Push("b", "reject"), message_id="m"))
        assert isinstance(error, gr.Rejected)
        assert str(error) == "as you wished"
        assert await puppet.ask(Get()) == Pile(["a"] * before)
        again = await raised(puppet.ask(Push("b", "reject"), message_id="m"))
        assert (type(again), str(again)) == (gr.Rejected, "as you wished")
        async with database.open() as store:
            (message,) = [m for m in await mail_of(store, PATH) if m.message_id == "m"]
            assert (message.status, message.deliveries) == (MessageStatus.HANDLED, 1)


async def test_r25_rejected_sends_nothing(database: Shared) -> None:
    async def step(puppet: Puppet) -> None:
        await puppet.context.runtime.ref("service/other").send(Do("x"))
        puppet.context.after(1, Do("tick"))
        raise gr.Rejected("no")

    children = (gr.Child("puppet", Puppet, {"go": step}), gr.Child("other", Puppet, {}))
    async with database.runtime(*children) as runtime:
        assert isinstance(await raised(runtime.ref(PATH).ask(Do("go"))), gr.Rejected)
        await anyio.sleep(2)
        assert await runtime.ref(PATH).ask(Look()) == ()
        assert await runtime.ref("service/other").ask(Look()) == ()


async def test_r25_stop_out_of_a_handler_ends_the_actor_with_the_message_handled_and_the_state_as_it_was(
    database: Shared,
) -> None:
    async with database.runtime(gr.Child("puppet", PileKeeper, restart="transient")) as runtime:
        await runtime.ref(PATH).ask(Push("a"))
        await runtime.ref(PATH).send(Push("b", "stop"), message_id="m")
        await settled()
        assert runtime.ref(PATH).incarnation == 1
        async with database.open() as store:
            (message,) = [m for m in await mail_of(store, PATH) if m.message_id == "m"]
            assert (message.status, message.deliveries) == (MessageStatus.HANDLED, 1)
            assert (await record_of(store, PATH)).closed_at is not None
    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Pile(["a"])


async def test_context_stop_commits_what_the_handler_did(database: Shared) -> None:
    async def step(puppet: Puppet) -> str:
        puppet.context.stop()
        return "bye"

    async with database.runtime(gr.Child("puppet", Puppet, {"go": step}, restart="transient")) as runtime:
        assert await runtime.ref(PATH).ask(Do("go")) == "bye"
    async with database.runtime(gr.Child("puppet", Puppet, {})) as runtime:
        assert await runtime.ref(PATH).ask(Look()) == ("go",)


async def test_a_crash_takes_the_state_back_to_the_last_commit(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        await runtime.ref(PATH).ask(Push("a"))
        error = await raised(runtime.ref(PATH).ask(Push("b", "crash"), timeout=None))
        assert isinstance(error, gr.DeadLettered)
        assert await runtime.ref(PATH).ask(Get()) == Pile(["a"])
        assert runtime.ref(PATH).incarnation == 6


async def test_r31_a_large_state_is_kept_in_the_content_store(database: Shared) -> None:
    large = Log(("x" * (2 * INLINE_LIMIT),))
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        await runtime.ref(PATH).ask(Put(large))
        async with database.open() as store:
            assert isinstance((await record_of(store, PATH)).state, Content)
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == large


async def test_r31_a_state_above_the_hard_limit_is_a_crash_that_names_it(database: Shared) -> None:
    class Inflating(Keeper[Log]):
        @gr.handles
        async def push(self, message: Push) -> int:
            self.state = Log((message.what * 17_000_000,))
            return 1

    async with database.runtime(
        gr.Child("puppet", Inflating, mailbox=gr.PersistentMailbox(max_deliveries=1))
    ) as runtime:
        error = await raised(runtime.ref(PATH).ask(Push("x"), timeout=None))
        assert isinstance(error, gr.DeadLettered)
        node = runtime.tree().find(PATH)
        assert node is not None
        assert "the state of 'service/puppet'" in (node.last_error or "")
        assert await runtime.ref(PATH).ask(Get()) == Log()


# ----------------------------------------------------------------------------------------------- what cannot be read


class Newer(Keeper[Log]):
    """Version 2, with a hook; counts how it is called."""

    state_version = 2
    calls: list[tuple[int, Any]]

    @classmethod
    def migrate(cls, version: int, stored: Any) -> Log:
        cls.calls.append((version, stored))
        return Log((*stored["lines"], f"from version {version}"))


class Stubborn(Keeper[Log]):
    """Version 2, without a hook."""

    state_version = 2


async def park_reason(database: Shared) -> tuple[ParkReason | None, str]:
    async with database.open() as store:
        record = await record_of(store, PATH)
        assert record.owner is None or record.parked is None
        return record.parked, record.parked_detail or ""


async def unpark(database: Shared) -> None:
    async with database.open() as store:
        assert isinstance(await store.commit(UnparkAddress(address=PATH)), Unparked)


@pytest.fixture
def newer() -> Iterator[type[Newer]]:
    Newer.calls = []
    yield Newer
    del Newer.calls


async def test_c23_a_state_of_an_older_version_is_migrated(database: Shared, newer: type[Newer]) -> None:
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("a",))))
    async with database.runtime(gr.Child("puppet", newer)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Log(("a", "from version 1"))
        async with database.open() as store:
            assert (await record_of(store, PATH)).state_version == 2
    ((version, stored),) = newer.calls
    assert (version, stored["lines"]) == (1, ["a"])
    async with database.runtime(gr.Child("puppet", newer)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Log(("a", "from version 1"))
    assert len(newer.calls) == 1


async def test_c23_a_rejecting_handler_leaves_a_migrated_state_migrated(database: Shared) -> None:
    class NewPile(PileKeeper):
        state_version = 2

        @classmethod
        def migrate(cls, version: int, stored: Any) -> Pile:
            return Pile([*stored["sheets"], "migrated"])

    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        await runtime.ref(PATH).ask(Push("a"))
    async with database.runtime(gr.Child("puppet", NewPile)) as runtime:
        assert isinstance(await raised(runtime.ref(PATH).ask(Push("b", "reject"))), gr.Rejected)
        assert await runtime.ref(PATH).ask(Get()) == Pile(["a", "migrated"])


@pytest.mark.parametrize("kind", ["no hook", "raising hook", "unstorable", "other type"])
async def test_c23_a_state_that_cannot_be_migrated_parks_its_actor_and_keeps_its_mail(
    database: Shared, kind: str
) -> None:
    class Raising(Stubborn):
        @classmethod
        def migrate(cls, version: int, stored: Any) -> Log:
            raise Boom("no way")

    class Unstorable(Stubborn):
        @classmethod
        def migrate(cls, version: int, stored: Any) -> Log:
            return Log((object(),))  # type: ignore[arg-type]

    class Other(Stubborn):
        @classmethod
        def migrate(cls, version: int, stored: Any) -> Log:
            return Pile()  # type: ignore[return-value]

    cls, said = {
        "no hook": (Stubborn, "has no `migrate`"),
        "raising hook": (Raising, "no way"),
        "unstorable": (Unstorable, "Log.lines[0]"),
        "other type": (Other, "is a Pile"),
    }[kind]
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("a",))))
    async with database.runtime(gr.Child("puppet", cls)) as runtime:
        assert (await runtime.ref(PATH).send(Get())) is not None  # mail is accepted while it is parked
        await settled()
        reason, detail = await park_reason(database)
        assert reason is ParkReason.INCOMPATIBLE
        assert said in detail
        assert "the state of 'service/puppet'" in detail
    async with database.open() as store:
        assert (await record_of(store, PATH)).ready == 1
    await unpark(database)
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Log(("a",))


async def test_c23_a_state_of_a_newer_version_parks_its_actor(database: Shared, newer: type[Newer]) -> None:
    async with database.runtime(gr.Child("puppet", newer)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("a",))))
    async with database.runtime(gr.Child("puppet", Started)):
        reason, detail = await park_reason(database)
        assert reason is ParkReason.INCOMPATIBLE
        assert "stored as version 2, by newer code than this, which knows 1" in detail


async def test_c23_a_state_of_another_type_parks_its_actor(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", PileKeeper)) as runtime:
        await runtime.ref(PATH).ask(Push("a"))
    async with database.runtime(gr.Child("puppet", Started)):
        reason, detail = await park_reason(database)
        assert reason is ParkReason.INCOMPATIBLE
        assert "is a Pile, and Started has a Log: raise its state_version" in detail


async def test_c23_an_actor_goes_on_in_the_same_runtime_when_it_is_unparked(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("a",))))
    await damage(database, b'"a"', b"???")
    async with database.runtime(gr.Child("puppet", Started), gr.Child("other", Puppet, {})) as runtime:
        assert (await park_reason(database))[0] is ParkReason.UNDECODABLE
        await runtime.ref("service/other").ask(Do("meanwhile"))  # it holds nobody up
        asked: list[object] = []
        async with anyio.create_task_group() as group:

            async def ask() -> None:
                asked.append(await runtime.ref(PATH).ask(Get(), timeout=1000))

            group.start_soon(ask)
            await settled()
            await damage(database, b"???", b'"a"')
            await unpark(database)
        assert asked == [Log(("a",))]


async def damage(database: Shared, old: bytes, new: bytes) -> None:
    """Replace some bytes of the stored state."""
    async with database.open() as store:
        stored = (await record_of(store, PATH)).state
    assert isinstance(stored, bytes)
    assert old in stored
    tamper(database.url, "UPDATE addresses SET state = ? WHERE address = ?", stored.replace(old, new), PATH)


async def test_c23_an_undecodable_state_names_type_and_field(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("a",))))
    await damage(database, b'"a"', b"123")
    async with database.runtime(gr.Child("puppet", Started)):
        reason, detail = await park_reason(database)
    assert reason is ParkReason.UNDECODABLE
    assert "the state of 'service/puppet': cannot decode Log.lines[0]" in detail


async def test_c23_content_that_is_damaged_or_gone_parks_its_actor(database: Shared) -> None:
    large = Log(("x" * (2 * INLINE_LIMIT),))
    children = (gr.DurableActors("pool", Started),)
    async with database.runtime(*children) as runtime:
        await runtime.ref("service/pool/damaged").ask(Put(large))
    tamper(database.url, "UPDATE content SET bytes = ? WHERE chunk = ?", b"y", 0)
    async with database.runtime(*children) as runtime:
        await runtime.ref("service/pool/damaged").send(Get())
        await settled()
        async with database.open() as store:
            record = await record_of(store, "service/pool/damaged")
        assert record.parked is ParkReason.UNDECODABLE
        assert "its bytes are damaged" in (record.parked_detail or "")


@pytest.mark.parametrize("mask", [0x80, 0x01])
async def test_k18_a_flipped_bit_in_a_stored_state_is_an_explicit_blocked_state(database: Shared, mask: int) -> None:
    """Or another state of the same type, where the database keeps no digest that could tell; never None, never a guess."""
    pool = gr.DurableActors("pool", Started)
    kept = Log(("some words",))
    async with database.runtime(pool) as runtime:
        await runtime.ref("service/pool/0").ask(Put(kept))
        async with database.open() as store:
            data = (await record_of(store, "service/pool/0")).state
        assert isinstance(data, bytes)
        for number in range(1, len(data)):
            await runtime.ref(f"service/pool/{number}").ask(Put(kept))
    for number in range(len(data)):
        flipped = bytes(byte ^ (mask if place == number else 0) for place, byte in enumerate(data))
        tamper(database.url, "UPDATE addresses SET state = ? WHERE address = ?", flipped, f"service/pool/{number}")
    async with database.runtime(pool) as runtime:
        for number in range(len(data)):
            await runtime.ref(f"service/pool/{number}").send(Get(), message_id="get")
        await settled()
        for number in range(len(data)):
            async with database.open() as store:
                record = await record_of(store, f"service/pool/{number}")
            if record.parked is None and mask != 0x80:
                state = await runtime.ref(f"service/pool/{number}").ask(Get())
                assert (type(state), type(state.lines[0])) == (Log, str)
            else:
                assert record.parked is ParkReason.UNDECODABLE
                assert f"the state of 'service/pool/{number}'" in (record.parked_detail or "")
                assert (record.ready, record.owner) == (1, None)


async def test_k18_other_columns_of_a_state_say_nothing_that_could_be_taken_for_it(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("a",))))
    tamper(database.url, "UPDATE addresses SET state_type = ? WHERE address = ?", "no:Such", PATH)
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Log(("a",))
    tamper(database.url, "UPDATE addresses SET state_version = ? WHERE address = ?", 0, PATH)
    async with database.runtime(gr.Child("puppet", Started)):
        assert (await park_reason(database))[0] is ParkReason.INCOMPATIBLE


async def test_k18_a_flipped_bit_in_a_stored_message_makes_a_dead_letter_and_the_next_one_is_handled(
    database: Shared,
) -> None:
    encoded = Payloads().encode(Do("some words"))
    async with database.open() as store:
        await store.commit(OpenAddress(address=PATH, kind=AddressKind.ACTOR))
        for number in range(len(encoded.body) + 1):
            accept = AcceptMessage(
                address=PATH,
                message_id=str(number),
                type=encoded.type,
                body=encoded.body,
                digest=encoded.digest,
            )
            assert not isinstance(await store.commit(accept), Refused)
    for number in range(len(encoded.body)):
        flipped = bytes(byte ^ (0x80 if place == number else 0) for place, byte in enumerate(encoded.body))
        tamper(database.url, "UPDATE messages SET body = ? WHERE message_id = ?", flipped, str(number))
    async with database.runtime(gr.Child("puppet", Puppet, {})) as runtime:
        assert await runtime.ref(PATH).ask(Look()) == ("some words",)
        async with database.open() as store:
            mail = await mail_of(store, PATH)
    dead = [message for message in mail if message.status is MessageStatus.DEAD]
    assert len(dead) == len(encoded.body)
    assert all("it cannot be decoded" in (message.reason or "") for message in dead)


async def test_k18_a_flipped_bit_in_a_kept_reply_is_told_to_its_asker(database: Shared) -> None:
    async with database.runtime(gr.Child("puppet", Started)) as runtime:
        assert await runtime.ref(PATH).ask(Get(), message_id="m") == Log(("first",))
        tamper(database.url, "UPDATE messages SET reply = ? WHERE message_id = ?", b"\xff", "m")
        error = await raised(runtime.ref(PATH).ask(Get(), message_id="m"))
    assert isinstance(error, gr.Undecodable)
    assert "the reply to the message 'm' of 'service/puppet'" in str(error)


async def test_c23_a_state_class_that_was_renamed_is_found_by_its_alias(database: Shared) -> None:
    """And one with a tag of its own by that."""

    class Old(Keeper[Log]):
        def __init__(self) -> None:
            self.state = Log()

    class New(Keeper[Journal]):
        def __init__(self) -> None:
            self.state = Journal()

    async with database.runtime(gr.Child("puppet", Old)) as runtime:
        await runtime.ref(PATH).ask(Put(Log(("a",))))
    async with database.runtime(gr.Child("puppet", New)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Journal(("a",))
        await runtime.ref(PATH).ask(Put(Journal(("b",))))
        async with database.open() as store:
            assert (await record_of(store, PATH)).state_type == "log-book"
    async with database.runtime(gr.Child("puppet", New)) as runtime:
        assert await runtime.ref(PATH).ask(Get()) == Journal(("b",))


@wire(tag="log-book", aliases=[f"{Log.__module__}:Log"])
@frozen
class Journal:
    lines: tuple[str, ...] = ()
