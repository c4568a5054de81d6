"""What durable actors publish: given to its destination at least once, each time under the same identity (C20)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.persistence import OutboxRecord, OutboxStatus, ReadOutbox
from greenroom.runtime.durable import relay as rules
from greenroom.runtime.durable.relay import Destination, OutboxMessage, pause_before
from greenroom.runtime.durable.sweep import SweepFailed
from greenroom.testing import Away, StoreFaults
from tests.durable.helpers import Boom, events_of, settled
from tests.durable.puppets import Do, Puppet, Script, tamper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.durable.helpers import Shared

PATH = "service/puppet"


def publishing(*what: str, to: str = "post") -> Callable[[Puppet], Awaitable[None]]:
    async def step(puppet: Puppet) -> None:
        for word in what:
            puppet.context.publish(to, Do(word))

    return step


class Post:
    """A destination that keeps what it was given, and does with it what it was made for."""

    def __init__(self, then: Callable[[OutboxMessage], Awaitable[object]] | None = None) -> None:
        self.given: list[OutboxMessage] = []
        self.at: list[float] = []
        self._then = then

    async def __call__(self, message: OutboxMessage) -> None:
        self.given.append(message)
        self.at.append(anyio.current_time())
        if self._then is not None:
            await self._then(message)

    @property
    def words(self) -> list[str]:
        return [message.message.what for message in self.given]


def runtime(database: Shared, script: Script, destinations: dict[str, Destination], **options: Any) -> gr.Runtime:
    return database.runtime(gr.Child("puppet", Puppet, script), destinations=destinations, **options)


async def rows(database: Shared) -> list[OutboxRecord]:
    async with database.open() as store:
        return list(await store.read(ReadOutbox(address=PATH)))


async def failing(message: OutboxMessage) -> None:
    raise Boom("no stamps")


# --------------------------------------------------------------------------------------------------------- publishing


async def test_c20_what_a_handler_published_is_given_to_its_destination_once_it_is_committed(database: Shared) -> None:
    post = Post()

    async def step(puppet: Puppet) -> None:
        await publishing("a", "b")(puppet)
        await anyio.sleep(5)
        assert post.given == []

    async with runtime(database, {"go": step}, {"post": post}) as service:
        await service.ref(PATH).ask(Do("go"), message_id="m", timeout=60)
        await settled()
        assert post.given == [
            OutboxMessage(message_id=f"{PATH}|m|0|outside", message=Do("a"), sender=PATH, attempts=1),
            OutboxMessage(message_id=f"{PATH}|m|1|outside", message=Do("b"), sender=PATH, attempts=1),
        ]
        assert [row.status for row in await rows(database)] == [OutboxStatus.SENT] * 2


async def test_c20_a_handler_that_fails_has_published_nothing(database: Shared) -> None:
    post = Post()

    async def step(puppet: Puppet) -> None:
        puppet.context.publish("post", Do("a"))
        raise gr.Rejected("no")

    async with runtime(database, {"go": step}, {"post": post}) as service:
        with pytest.raises(gr.Rejected):
            await service.ref(PATH).ask(Do("go"))
        await anyio.sleep(10_000)
    assert post.given == []


@pytest.mark.parametrize("phase", ["before", "unacknowledged"])
async def test_c20_a_relay_that_dies_between_publishing_and_marking_publishes_again_under_the_same_id(
    database: Shared, phase: str
) -> None:
    post = Post()
    async with (
        database.death_at(f"{phase} FinishSend {PATH} 1") as source,
        runtime(database, {"go": publishing("a")}, {"post": post}, source=source) as service,
    ):
        await service.ref(PATH).ask(Do("go"))
        await anyio.sleep_forever()
    async with runtime(database, {}, {"post": post}):
        await settled()
    assert len(post.given) == (2 if phase == "before" else 1)
    assert len({message.message_id for message in post.given}) == 1
    assert [message.attempts for message in post.given] == [1, 2][: len(post.given)]
    assert [row.status for row in await rows(database)] == [OutboxStatus.SENT]


async def test_what_nobody_could_publish_waits_for_a_runtime_that_can(database: Shared) -> None:
    """An unknown destination keeps its messages pending, however many, and hides nobody else's."""
    post = Post()
    script = {"unknown": publishing(*map(str, range(2 * rules.PAGE)), to="later"), "go": publishing("a")}
    async with runtime(database, script, {"post": post}) as service:
        await service.ref(PATH).ask(Do("unknown"))
        await service.ref(PATH).ask(Do("go"))
        await settled()
        assert post.words == ["a"]
    later = Post()
    async with runtime(database, {}, {"later": later}):
        await settled()
    assert later.words == [str(number) for number in range(2 * rules.PAGE)]


async def test_each_destination_gets_its_own(database: Shared) -> None:
    posts = {name: Post() for name in "abc"}
    script = {name: publishing(f"for {name}", to=name) for name in "abc"}
    async with runtime(database, script, dict(posts)) as service:
        for name in "cab":
            await service.ref(PATH).ask(Do(name))
        await settled()
    assert {name: post.words for name, post in posts.items()} == {name: [f"for {name}"] for name in "abc"}


# ----------------------------------------------------------------------------------------------------------- failing


async def test_a_destination_that_fails_is_tried_again_after_growing_pauses(database: Shared) -> None:
    async def third_time(message: OutboxMessage) -> None:
        if message.attempts < 4:
            raise Boom("no stamps")

    post = Post(third_time)
    async with runtime(database, {"go": publishing("a")}, {"post": post}) as service:
        await service.ref(PATH).ask(Do("go"))
        await anyio.sleep(60)
    assert [message.attempts for message in post.given] == [1, 2, 3, 4]
    pauses = [later - earlier for earlier, later in zip(post.at, post.at[1:], strict=False)]
    for number, pause in enumerate(pauses, 1):
        assert pause_before(number, 1) - 0.01 <= pause <= pause_before(number, 0) + 0.01


async def test_a_destination_that_keeps_failing_is_given_up_visibly(
    database: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    post = Post(failing)
    async with runtime(database, {"go": publishing("a")}, {"post": post}, source=database.source(lease=1e6)) as service:
        await service.ref(PATH).ask(Do("go"))
        await anyio.sleep(20_000)
        (row,) = await rows(database)
    assert (row.status, row.attempts) == (OutboxStatus.DEAD, rules.TRIES)
    assert len(post.given) == rules.TRIES
    assert any("given up" in record.message and "no stamps" in record.message for record in caplog.records)


async def test_a_message_that_cannot_be_decoded_is_not_given_and_says_why(
    database: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    post = Post()
    async with runtime(database, {"go": publishing("a")}, {}) as service:
        await service.ref(PATH).ask(Do("go"))
    tamper(database.url, "UPDATE outbox SET body = ? WHERE address = ?", b"{?", PATH)
    async with runtime(database, {}, {"post": post}):
        await settled()
    assert post.given == []
    assert [(row.status, row.attempts) for row in await rows(database)] == [(OutboxStatus.PENDING, 1)]
    assert any("cannot decode" in record.message for record in caplog.records)


async def test_a_failing_message_does_not_hold_up_the_next_one(database: Shared) -> None:
    async def not_the_first(message: OutboxMessage) -> None:
        if message.message == Do("a"):
            raise Boom

    post = Post(not_the_first)
    async with runtime(database, {"go": publishing("a", "b")}, {"post": post}) as service:
        await service.ref(PATH).ask(Do("go"))
        await settled()
    assert post.words == ["a", "b"]


async def test_a_destination_that_hangs_holds_up_no_other_and_nothing_else(database: Shared) -> None:
    async def hang(message: OutboxMessage) -> None:
        await anyio.sleep_forever()

    stuck, post = Post(hang), Post()
    script = {"stuck": publishing("a", to="stuck"), "go": publishing("b")}
    async with runtime(database, script, {"stuck": stuck, "post": post}) as service:
        await service.ref(PATH).ask(Do("stuck"))
        await settled()
        assert stuck.words == ["a"]
        await service.ref(PATH).ask(Do("go"))
        await settled()
        assert post.words == ["b"]


async def test_a_destination_that_hangs_is_broken_off_before_another_relay_may_take_its_message(
    database: Shared,
) -> None:
    """Of two relays, none sends a row while the other does."""
    at_work: Counter[str] = Counter()
    overlaps: list[str] = []

    async def hang(message: OutboxMessage) -> None:
        at_work[message.message_id] += 1
        if at_work[message.message_id] > 1:
            overlaps.append(message.message_id)
        try:
            await anyio.sleep_forever()
        finally:
            at_work[message.message_id] -= 1

    posts = [Post(hang), Post(hang)]
    async with (
        runtime(
            database, {"go": publishing("a", "b")}, {"post": posts[0]}, source=database.source(sweep=1.0)
        ) as service,
        gr.Runtime(gr.Supervisor("other"), store=database.source(sweep=1.0), destinations={"post": posts[1]}),
    ):
        await service.ref(PATH).ask(Do("go"))
        await anyio.sleep(120)
    assert sum(len(post.given) for post in posts) > 2
    assert overlaps == []


async def test_the_relay_goes_on_when_the_store_has_been_away(database: Shared) -> None:
    """And says so: the mark of what was published may be lost, and it is then published again."""
    post = Post()
    async with StoreFaults({f"FinishSend {PATH} 1": Away(1000)}) as faults:
        source = database.source(driver=faults.wrap, bound=0.4, lease=1e6)
        async with runtime(database, {"go": publishing("a")}, {"post": post}, source=source) as service:
            events = service.events()
            await service.ref(PATH).ask(Do("go"))
            await anyio.sleep(3600 * 2)
            failed = events_of(SweepFailed, events)
    assert "publish to 'post'" in {event.duty for event in failed}
    assert 1 <= len(post.given) <= 2
    assert len({message.message_id for message in post.given}) == 1
    assert [row.status for row in await rows(database)] == [OutboxStatus.SENT]


# -------------------------------------------------------------------------------------------------------------- rules


@given(attempts=st.integers(1, 10_000), jitter=st.floats(0, 1))
def test_a_pause_lies_between_half_a_second_and_five_minutes(attempts: int, jitter: float) -> None:
    assert 0.5 <= pause_before(attempts, jitter) <= rules.LONGEST_PAUSE


@given(attempts=st.integers(1, 10_000), jitter=st.floats(0, 1), later=st.floats(0, 1))
def test_pauses_grow_with_the_tries_and_shrink_with_the_jitter(attempts: int, jitter: float, later: float) -> None:
    assert pause_before(attempts, jitter) <= pause_before(attempts + 1, jitter)
    smaller, larger = sorted((jitter, later))
    assert pause_before(attempts, larger) <= pause_before(attempts, smaller)
    assert pause_before(attempts, 1) == pause_before(attempts, 0) / 2


def test_a_relay_has_time_to_break_a_send_off_before_another_may_take_it() -> None:
    assert rules.LONGEST_SEND < rules.TAKEN
