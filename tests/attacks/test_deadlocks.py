"""Actors that wait for their own end: they are told at once, instead of holding up their supervisor for ever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import Do, Puppet

ENDLESS = gr.Supervisor(
    "app",
    gr.Supervisor("team", gr.Child("member", Puppet, shutdown=None), intensity=10),
    gr.DynamicSupervisor("pool", gr.Child("guest", Puppet, shutdown=None)),
    intensity=10,
)


@attrs.frozen(eq=False)
class Beside(gr.Message[Any]):
    """Run this in a concurrent handler; the reply is what it returns."""

    work: Callable[[Any], Awaitable[Any]]


class Busy(gr.Actor):
    @gr.handles(concurrency=2)
    async def beside(self, message: Beside) -> Any:
        return await message.work(self)


async def cause_of(ask: Awaitable[Any]) -> BaseException | None:
    with pytest.raises(gr.ActorCrashed) as crashed:
        await ask
    return crashed.value.__cause__


async def test_an_actor_that_has_itself_terminated_is_told_at_once() -> None:
    async with gr.Runtime(ENDLESS) as runtime:

        async def end(_self: Puppet) -> None:
            await runtime.ref("app/team").terminate_child("member")

        before = anyio.current_time()
        cause = await cause_of(runtime.ref("app/team/member").ask(Do(end)))
        assert isinstance(cause, gr.WouldDeadlock)
        assert "context.stop()" in str(cause)
        assert anyio.current_time() == before
        assert [child.name for child in await runtime.ref("app/team").which_children()] == ["member"]


async def test_an_actor_that_has_its_own_supervisor_terminated_is_told_at_once() -> None:
    async with gr.Runtime(ENDLESS) as runtime:

        async def end(_self: Puppet) -> None:
            await runtime.ref("app").terminate_child("team")

        assert isinstance(await cause_of(runtime.ref("app/team/member").ask(Do(end))), gr.WouldDeadlock)


async def test_a_dynamic_child_that_has_itself_terminated_by_ref_is_told_at_once() -> None:
    async with gr.Runtime(ENDLESS) as runtime:
        guest = await runtime.ref("app/pool").start_child()

        async def end(self: Puppet) -> None:
            await runtime.ref("app/pool").terminate_child(self.context.ref)

        assert isinstance(await cause_of(guest.ask(Do(end))), gr.WouldDeadlock)


async def test_a_concurrent_handler_that_has_its_actor_terminated_is_told_at_once() -> None:
    async with gr.Runtime(gr.Supervisor("app", gr.Child("busy", Busy, shutdown=None))) as runtime:

        async def end(_self: Busy) -> None:
            await runtime.ref("app").terminate_child("busy")

        assert isinstance(await cause_of(runtime.ref("app/busy").ask(Beside(end))), gr.WouldDeadlock)


async def test_a_concurrent_handler_that_waits_for_the_end_of_the_tree_is_told_at_once() -> None:
    async with gr.Runtime(gr.Supervisor("app", gr.Child("busy", Busy, shutdown=None))) as runtime:

        async def end(_self: Busy) -> None:
            await runtime.stop()

        assert isinstance(await cause_of(runtime.ref("app/busy").ask(Beside(end))), gr.WouldDeadlock)


async def test_an_actors_nursery_may_have_the_actor_terminated() -> None:
    async with gr.Runtime(ENDLESS) as runtime:
        team = runtime.ref("app/team")

        async def end(self: Puppet) -> None:
            self.context.nursery.start_soon(team.terminate_child, "member")

        await runtime.ref("app/team/member").ask(Do(end))
        await anyio.sleep(1)
        assert [child.state for child in await team.which_children()] == [gr.State.DOWN]


async def test_a_sibling_with_a_longer_name_is_not_taken_for_the_caller() -> None:
    tree = gr.Supervisor("app", gr.Child("a", Puppet), gr.Child("a2", Puppet))
    async with gr.Runtime(tree) as runtime:

        async def end(_self: Puppet) -> None:
            await runtime.ref("app").terminate_child("a")

        await runtime.ref("app/a2").ask(Do(end))
        assert [child.state for child in await runtime.ref("app").which_children()] == [
            gr.State.RUNNING,
            gr.State.DOWN,
        ]


async def test_a_nursery_task_begun_in_on_start_may_call_the_supervisor_that_waits_for_the_start() -> None:
    found: list[str] = []

    class Curious(gr.Actor):
        async def on_start(self) -> None:
            self.context.nursery.start_soon(self.look)
            await anyio.sleep(1)

        async def look(self) -> None:
            found.extend(child.name for child in await self.context.runtime.ref("app").which_children())

    async with gr.Runtime(gr.Supervisor("app", gr.Child("curious", Curious))):
        await anyio.sleep(1)
    assert found == ["curious"]


async def test_an_actor_that_calls_the_supervisor_that_is_stopping_it_is_told_at_once() -> None:
    told: list[BaseException] = []

    class Talker(gr.Actor):
        async def on_stop(self, exit: gr.Exit) -> None:
            try:
                await self.context.runtime.ref("app").which_children()
            except gr.WouldDeadlock as error:
                told.append(error)

    async with gr.Runtime(gr.Supervisor("app", gr.Child("talker", Talker, shutdown=None))) as runtime:
        before = anyio.current_time()
        report = await runtime.stop()
        assert anyio.current_time() == before
    assert report.clean
    assert "which is stopping it" in str(told[0])
