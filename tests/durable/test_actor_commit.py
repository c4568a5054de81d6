"""What a handler of a durable actor did is committed with its message, in one transaction, or not at all (R25, I3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import MessageStatus, ReadOutbox
from tests.durable.helpers import Boom, raised, settled
from tests.durable.puppets import Do, Listener, Look, Puppet, Script, mail_of, record_of

if TYPE_CHECKING:
    from greenroom.persistence import Committer
    from tests.durable.helpers import Shared

PATH = "service/puppet"


async def everything(puppet: Puppet) -> str:
    """Send, set a timer, publish, tell: one of each that leaves with the commit."""
    runtime = puppet.context.runtime
    await runtime.ref("service/other").send(Do("from puppet"))
    puppet.context.after(100_000, Do("tick"), key="timer")
    puppet.context.publish("outside", Do("to the outside"))
    runtime.ref("service/listener").tell(Do("told"))
    return "reply"


class Half(Exception):
    """Raised when everything has been done."""


def tree(script: Script, heard: list[str]) -> tuple[gr.Child, ...]:
    return (
        gr.Child("puppet", Puppet, script),
        gr.Child("other", Puppet, script),
        gr.Child("listener", Listener, heard),
    )


async def effects(store: Committer) -> dict[str, Any]:
    """What there is in the store of each kind of effect."""
    address = await record_of(store, PATH)
    mail = await mail_of(store, PATH)
    (message,) = [m for m in mail if m.timer is None]
    return {
        "state": address.state is not None,
        "handled": message.status is MessageStatus.HANDLED,
        "reply": message.reply is not None,
        "sent": len(await mail_of(store, "service/other")),
        "timer": sum(m.timer == "timer" for m in mail),
        "outside": len(await store.read(ReadOutbox(address=PATH))),
    }


ALL = {"state": True, "handled": True, "reply": True, "sent": 1, "timer": 1, "outside": 1}
NOTHING = {"state": False, "handled": False, "reply": False, "sent": 0, "timer": 0, "outside": 0}


async def test_r25_all_that_a_handler_did_is_committed_with_its_message(database: Shared) -> None:
    heard: list[str] = []
    async with database.runtime(*tree({"all": everything}, heard)) as runtime:
        assert await runtime.ref(PATH).ask(Do("all"), message_id="m") == "reply"
        await settled()
        async with database.open() as store:
            assert await effects(store) == ALL
        assert heard == ["told"]
        assert await runtime.ref("service/other").ask(Look()) == ("from puppet",)


async def test_r25_a_handler_that_raises_has_done_nothing(database: Shared) -> None:
    async def fail(puppet: Puppet) -> None:
        await everything(puppet)
        raise Boom

    heard: list[str] = []
    async with database.runtime(*tree({"fail": fail}, heard)) as runtime:
        await raised(runtime.ref(PATH).ask(Do("fail"), message_id="m", timeout=1))
        await settled()
        async with database.open() as store:
            assert await effects(store) == NOTHING
            (message,) = await mail_of(store, PATH)
            assert (message.status, message.deliveries) == (MessageStatus.DEAD, 5)
        assert heard == []
        assert await runtime.ref(PATH).ask(Look()) == ()


@pytest.mark.parametrize("phase", ["before", "unacknowledged", "after"])
async def test_i3_a_death_at_the_commit_leaves_all_or_nothing(database: Shared, phase: str) -> None:
    heard: list[str] = []
    script: Script = {"all": everything}
    async with (
        database.death_at(f"{phase} FinishDelivery {PATH} m") as source,
        database.runtime(*tree(script, heard), source=source) as runtime,
    ):
        await runtime.ref(PATH).ask(Do("all"), message_id="m")
        await anyio.sleep_forever()
    async with database.open() as store:
        assert await effects(store) == (NOTHING if phase == "before" else ALL)
    assert heard == (["told"] if phase == "after" else [])
    # Whatever it was, the next life makes the whole of it, once.
    async with database.runtime(*tree(script, heard)) as runtime:
        assert await runtime.ref(PATH).ask(Do("all"), message_id="m") == "reply"
        await settled()
        async with database.open() as store:
            assert await effects(store) == ALL
            assert [m.message_id for m in await mail_of(store, "service/other")] == [f"{PATH}|m|0"]
        assert await runtime.ref("service/other").ask(Look()) == ("from puppet",)
        assert await runtime.ref(PATH).ask(Look()) == ("all",)


async def test_r25_what_is_told_to_actors_in_memory_is_lost_with_a_death_before_it_left(database: Shared) -> None:
    heard: list[str] = []
    async with (
        database.death_at(f"unacknowledged FinishDelivery {PATH} m") as source,
        database.runtime(*tree({"all": everything}, heard), source=source) as runtime,
    ):
        await runtime.ref(PATH).send(Do("all"), message_id="m")
        await anyio.sleep_forever()
    async with database.runtime(*tree({"all": everything}, heard)) as runtime:
        assert await runtime.ref(PATH).ask(Do("all"), message_id="m") == "reply"
        await settled()
    assert heard == []


async def test_r22_a_death_in_the_handler_counts_the_delivery(database: Shared) -> None:
    async with (
        database.death_at(f"after BeginDelivery {PATH} m") as source,
        database.runtime(*tree({}, []), source=source) as runtime,
    ):
        await runtime.ref(PATH).send(Do("x"), message_id="m")
        await anyio.sleep_forever()
    async with database.runtime(*tree({}, [])) as runtime:
        assert await runtime.ref(PATH).ask(Do("x"), message_id="m") is None
        assert await runtime.ref(PATH).ask(Look()) == ("x",)
        async with database.open() as store:
            deliveries = {m.message_id: m.deliveries for m in await mail_of(store, PATH)}
        assert deliveries["m"] in (1, 2)
