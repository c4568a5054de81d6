"""Persistent mailboxes of thread children and process children."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

import greenroom as gr
from tests.durable.desks import DESK
from tests.durable.helpers import settled, until
from tests.durable.isolated import (
    Await,
    Decline,
    Forward,
    Line,
    ProcessDesk,
    PykkaDesk,
    ThreadDesk,
    Unread,
    Whoami,
    lines,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.durable.helpers import Shared

KINDS = pytest.mark.parametrize("isolation", ["thread", "process"])

ONE_STORE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""Where the actor runs makes no difference to the store, and processes take their time."""


def isolated(isolation: str, path: Path, *, name: str = "desk", max_deliveries: int = 5, **options: Any) -> gr.Child:
    factory = ProcessDesk if isolation == "process" else ThreadDesk
    mailbox = gr.PersistentMailbox(max_deliveries=max_deliveries)
    where: Any = "thread" if isolation == "thread" else "process"
    return gr.Child(name, factory, str(path), isolation=where, mailbox=mailbox, **options)


@KINDS
async def test_messages_are_handled_in_order_and_their_replies_kept(
    database: Shared, tmp_path: Path, isolation: str
) -> None:
    path = tmp_path / "lines"
    async with database.runtime(isolated(isolation, path)) as runtime:
        ref = runtime.ref(DESK)
        for text in ("a", "b"):
            assert await ref.send(Line(text), message_id=text) == gr.Receipt(text, "accepted")
        assert await ref.ask(Line("c"), message_id="c") == 3
        assert await ref.ask(Line("c"), message_id="c") == 3
        pid, thread = await ref.ask(Whoami())
        assert (pid == os.getpid()) is (isolation == "thread")
        assert (thread == "MainThread") is (isolation == "process")
        with pytest.raises(gr.Rejected, match="no"):
            await ref.ask(Decline())
    assert lines(path) == ["a", "b", "c"]


@ONE_STORE
@KINDS
async def test_a_message_that_nobody_handles_there_is_a_dead_letter(
    database: Shared, tmp_path: Path, isolation: str
) -> None:
    async with database.runtime(isolated(isolation, tmp_path / "lines")) as runtime:
        with pytest.raises(gr.DeadLettered, match="Line"):
            await runtime.ref(DESK).ask(Unread(), message_id="q1")
        async with database.client() as client:
            (letter,) = [each async for each in client.dead_letters()]
        assert letter.message_id == "q1"
        assert runtime.ref(DESK).incarnation == 1


@ONE_STORE
@KINDS
async def test_r22_a_message_that_crashes_the_actor_each_time_is_a_dead_letter(
    database: Shared, tmp_path: Path, isolation: str
) -> None:
    path = tmp_path / "lines"
    async with database.runtime(isolated(isolation, path, max_deliveries=2)) as runtime:
        await runtime.ref(DESK).send(Line("crash"), message_id="m1")
        assert await runtime.ref(DESK).ask(Line("after it"), timeout=60) == 3
    assert lines(path) == ["crash", "crash", "after it"]


@ONE_STORE
async def test_r22_a_message_that_kills_its_process_child_each_time_is_a_dead_letter(
    database: Shared, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    async with database.runtime(isolated("process", path, max_deliveries=2)) as runtime:
        await runtime.ref(DESK).send(Line("die"), message_id="m1")
        assert await runtime.ref(DESK).ask(Line("after it"), timeout=60) == 3
        async with database.client() as client:
            (letter,) = [each async for each in client.dead_letters()]
        assert (letter.message_id, letter.deliveries) == ("m1", 2)
    assert lines(path) == ["die", "die", "after it"]


@ONE_STORE
@KINDS
async def test_what_waits_is_handled_by_the_next_runtime(database: Shared, tmp_path: Path, isolation: str) -> None:
    path = tmp_path / "lines"
    async with database.runtime(isolated(isolation, path)) as runtime:
        await runtime.ref("service").terminate_child("desk")
        for text in ("a", "b"):
            await runtime.ref(DESK).send(Line(text))
    async with database.runtime(isolated(isolation, path)) as runtime:
        assert await runtime.ref(DESK).ask(Line("c")) == 3
    assert lines(path) == ["a", "b", "c"]


@ONE_STORE
@pytest.mark.parametrize("isolation", ["thread", "process", "process with plain handlers"])
async def test_such_actors_send_to_persistent_mailboxes_and_ask_them(
    database: Shared, tmp_path: Path, isolation: str
) -> None:
    path = tmp_path / "lines"
    children = [isolated(isolation, tmp_path / "own"), isolated("thread", path, name="other")]
    async with database.runtime(*children) as runtime:
        other = runtime.ref("service/other")
        assert await runtime.ref(DESK).ask(Forward(other, "sent", "m1"), timeout=60) == "accepted 2"
        async with database.client() as client:
            kept = await client.message("service/other", "m1")
            assert kept is not None
            assert kept.sender == DESK
    assert lines(path) == ["sent", "asked"]


@ONE_STORE
async def test_i4_a_process_whose_lease_is_lost_is_killed_at_once(database: Shared, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    other = isolated("thread", tmp_path / "other", name="other")
    async with database.runtime(isolated("process", path, shutdown=100.0), other, intensity=0) as runtime:
        await runtime.ref(DESK).send(Line("nap once"), message_id="m1")
        await until(lambda: lines(path) == ["nap once"])
        begun = time.monotonic()
        database.pass_lease()
        await runtime.ref("service/other").ask(Whoami(), timeout=60)  # it is here that the loss is noticed
        assert await runtime.ref(DESK).ask(Line("after it"), timeout=60) == 3
        assert time.monotonic() - begun < 20
        async with database.client() as client:
            kept = await client.message(DESK, "m1")
            assert kept is not None
            assert (kept.status, kept.deliveries) == ("handled", 1)
    assert lines(path) == ["nap once", "nap once", "after it"]


@ONE_STORE
async def test_a_pykka_class_may_have_a_persistent_mailbox(database: Shared, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    child = gr.Child(
        "desk", PykkaDesk, str(path), isolation="thread", restart="transient", mailbox=gr.PersistentMailbox()
    )
    async with database.runtime(child) as runtime:
        assert await runtime.ref(DESK).ask(Line("a")) == 1
        await runtime.ref(DESK).send(Line("stop"), message_id="m1")
        await runtime.ref(DESK).send(Line("unread"), message_id="m2")
        await settled()
        async with database.client() as client:
            found = {each.message_id: each async for each in client.messages(DESK)}
        assert (found["m1"].status, found["m1"].deliveries) == ("handled", 1)
        assert (found["m2"].status, found["m2"].deliveries) == ("queued", 0)
        await runtime.ref("service").restart_child("desk")
        await settled()
    assert lines(path) == ["a", "stop", "unread"]


@ONE_STORE
async def test_an_actor_on_a_thread_waits_for_a_callback_by_way_of_the_event_loop(
    database: Shared, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    async with database.runtime(isolated("thread", path)) as runtime, database.client() as client:
        await runtime.ref(DESK).send(Await(), message_id="m1")
        await until(lambda: len(lines(path)) == 1)
        assert await client.answer(lines(path)[0], "answered") == "accepted"
        assert await runtime.ref(DESK).ask(Await(), message_id="m1", timeout=None) == "answered"


@ONE_STORE
async def test_an_actor_in_a_process_is_refused_a_callback_with_the_way_out(database: Shared, tmp_path: Path) -> None:
    async with database.runtime(isolated("process", tmp_path / "lines")) as runtime:
        with pytest.raises(gr.Rejected, match="parent's side"):
            await runtime.ref(DESK).ask(Await(), timeout=60)
