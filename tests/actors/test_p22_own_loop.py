"""P22: what an actor may not wait for, since it would wait for itself, is refused at once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

import greenroom as gr
from greenroom.testing import VirtualClock
from tests.actors.helpers import Do, Fail, Note, Puppet, idle, raised, tree


async def test_p22_an_actor_that_asks_itself_is_told_at_once_and_how_else(clock: VirtualClock) -> None:
    async def ask_self(self: Puppet) -> BaseException:
        return await raised(self.context.ref.ask(Note("x")))

    async with tree(gr.Child("a", Puppet)) as runtime:
        error = await runtime.ref("app/a").ask(Do(ask_self))
        assert isinstance(error, gr.WouldDeadlock)
        assert str(error) == (
            "'app/a' would wait for itself: `ask` from its own handler can never be served. "
            "Call the method, `tell` instead, or do it in `context.nursery`"
        )
        assert clock.now() == 0.0


async def test_p22_an_actor_that_asks_itself_without_timeout_is_told_too() -> None:
    async def ask_self(self: Puppet) -> BaseException:
        return await raised(self.context.runtime.ref("app/a").ask(Note("x"), timeout=None))

    async with tree(gr.Child("a", Puppet)) as runtime:
        assert isinstance(await runtime.ref("app/a").ask(Do(ask_self)), gr.WouldDeadlock)


async def test_p22_an_actor_may_tell_and_send_itself() -> None:
    async def go_on(self: Puppet) -> None:
        self.context.ref.tell(Note("told"))
        await self.context.ref.send(Note("sent"))

    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        await runtime.ref("app/a").ask(Do(go_on))
        await idle()
        assert log == ["told", "sent"]


async def test_p22_an_actor_that_would_wait_for_room_in_its_own_mailbox_is_told(clock: VirtualClock) -> None:
    async def send_self(self: Puppet) -> list[BaseException]:
        self.context.ref.tell(Note("fills it"))
        errors = [await raised(self.context.ref.send(Note("x")))]
        try:
            self.context.ref.tell(Note("y"))
        except gr.MailboxFull as error:
            errors.append(error)
        return errors

    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=1))) as runtime:
        errors = await runtime.ref("app/a").ask(Do(send_self))
        assert [type(error) for error in errors] == [gr.WouldDeadlock, gr.MailboxFull]
        assert "`send` from its own handler" in str(errors[0])
        assert clock.now() == 0.0


async def test_p22_an_actor_whose_mailbox_others_fill_while_it_sends_itself_is_told() -> None:
    async def send_self(self: Puppet) -> BaseException:
        async def send_many() -> None:
            for number in range(1000):
                await self.context.ref.send(Note(number))

        return await raised(send_many())

    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=100))) as runtime:
        ref = runtime.ref("app/a")

        async def fill() -> None:
            while True:
                with suppress(gr.MailboxFull):
                    ref.tell(Note("fills it"))
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(fill)
            assert isinstance(await ref.ask(Do(send_self)), gr.WouldDeadlock)
            group.cancel_scope.cancel()


async def test_p22_an_actor_with_a_full_mailbox_that_drops_may_send_itself() -> None:
    async def send_self(self: Puppet) -> None:
        self.context.ref.tell(Note("fills it"))
        await self.context.ref.send(Note("x"))

    log: list[object] = []
    mailbox = gr.Mailbox(capacity=1, overflow="drop_oldest")
    async with tree(gr.Child("a", Puppet, log, mailbox=mailbox)) as runtime:
        await runtime.ref("app/a").ask(Do(send_self))
        await idle()
        assert log == ["x"]


async def test_p22_an_actors_nursery_may_ask_the_actor() -> None:
    async def start(self: Puppet) -> None:
        async def ask() -> None:
            self.log.append(await self.context.ref.ask(Note("asked")))

        self.context.nursery.start_soon(ask)

    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        await runtime.ref("app/a").ask(Do(start))
        await idle()
        assert log == ["asked", 1]


async def test_p22_an_actors_nursery_may_wait_for_room_in_the_actors_mailbox() -> None:
    async def start(self: Puppet) -> None:
        async def send() -> None:
            for number in range(5):
                await self.context.ref.send(Note(number))

        self.context.nursery.start_soon(send)
        await anyio.sleep(1)

    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, mailbox=gr.Mailbox(capacity=1))) as runtime:
        await runtime.ref("app/a").ask(Do(start))
        await idle()
        assert log == [0, 1, 2, 3, 4]


async def test_p22_a_concurrent_handler_may_ask_its_own_actor() -> None:
    class Concurrent(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> int:
            return 7

        @gr.handles(concurrency=2)
        async def do(self, message: Do) -> Any:
            return await self.context.ref.ask(Note("x"))

    async def nothing(_: Any) -> None: ...

    async with tree(gr.Child("a", Concurrent)) as runtime:
        assert await runtime.ref("app/a").ask(Do(nothing)) == 7


@pytest.mark.parametrize("place", ["on_start", "on_stop"])
async def test_p22_an_actor_that_asks_itself_while_it_starts_or_stops_is_told(place: str) -> None:
    errors: list[BaseException] = []

    class Asks(Puppet):
        async def _ask(self, *_: object) -> None:
            errors.append(await raised(self.context.ref.ask(Note("x"))))

    setattr(Asks, place, Asks._ask)
    async with tree(gr.Child("a", Asks)):
        pass
    assert [type(error) for error in errors] == [gr.WouldDeadlock]


async def test_p22_two_actors_that_ask_each_other_time_out(clock: VirtualClock) -> None:
    async def ask_back(self: Puppet) -> Any:
        async def ask_again(other: Puppet) -> Any:
            return await other.context.runtime.ref("app/a").ask(Note("x"), timeout=2)

        return await raised(self.context.runtime.ref("app/b").ask(Do(ask_again), timeout=1))

    async with tree(gr.Child("a", Puppet), gr.Child("b", Puppet)) as runtime:
        assert isinstance(await runtime.ref("app/a").ask(Do(ask_back)), gr.AskTimeout)
        assert clock.now() == 1.0


CALLS: dict[str, tuple[object, ...]] = {
    "start_child": (gr.Child("more", Puppet),),
    "terminate_child": ("another",),
    "restart_child": ("a",),
    "delete_child": ("a",),
    "replace_childspec": (gr.Child("a", Puppet),),
    "which_children": (),
    "count_children": (),
    "get_childspec": ("a",),
}


@pytest.mark.parametrize("call", CALLS)
async def test_p22_a_call_to_the_own_supervisor_from_on_start_raises_at_once(call: str, clock: VirtualClock) -> None:
    errors: list[BaseException] = []

    class Calls(Puppet):
        async def on_start(self) -> None:
            supervisor = self.context.runtime.ref("app")
            errors.append(await raised(getattr(supervisor, call)(*CALLS[call])))

    async with tree(gr.Child("a", Calls)):
        assert clock.now() == 0.0
    [error] = errors
    assert str(error) == (
        f"'app/a' called `{call}` on 'app' from its own start, which that supervisor is waiting for. "
        "Send yourself a message in `on_start` and call when it arrives"
    )
    assert isinstance(error, gr.WouldDeadlock)


async def test_p22_a_call_to_a_supervisor_further_up_that_waits_for_the_start_raises_at_once() -> None:
    errors: list[BaseException] = []

    class Calls(Puppet):
        async def on_start(self) -> None:
            errors.append(await raised(self.context.runtime.ref("app").which_children()))

    async with tree(gr.Supervisor("inner", gr.Child("a", Calls))):
        assert isinstance(errors[0], gr.WouldDeadlock)


async def test_p22_a_call_to_the_own_supervisor_from_on_start_of_a_restart_raises_at_once() -> None:
    errors: list[BaseException] = []

    class Calls(Puppet):
        async def on_start(self) -> None:
            if self.context.incarnation > 1:
                errors.append(await raised(self.context.runtime.ref("app").which_children()))

    async with tree(gr.Child("a", Calls)) as runtime:
        runtime.ref("app/a").tell(Fail(RuntimeError("restart")))
        await idle()
        assert isinstance(errors[0], gr.WouldDeadlock)


async def test_p22_a_call_to_the_own_supervisor_from_a_handler_is_served() -> None:
    async def count(self: Puppet) -> Any:
        return (await self.context.runtime.ref("app").count_children()).active

    async with tree(gr.Child("a", Puppet)) as runtime:
        assert await runtime.ref("app/a").ask(Do(count)) == 1


async def test_p22_a_call_to_another_supervisor_from_on_start_is_served() -> None:
    counted: list[int] = []

    class Calls(Puppet):
        async def on_start(self) -> None:
            counted.append((await self.context.runtime.ref("app/first").count_children()).active)

    async with tree(gr.Supervisor("first", gr.Child("x", Puppet)), gr.Child("a", Calls)):
        assert counted == [1]


async def test_an_administration_call_on_an_actor_names_it() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        with pytest.raises(gr.NotASupervisor, match="'app/a' is an actor, not a supervisor: `which_children` goes to"):
            await runtime.ref("app/a").which_children()
