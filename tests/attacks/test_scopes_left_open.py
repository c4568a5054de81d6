"""Actors that open a cancel scope or a task group in one call and leave it open: the harm must end with the actor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import greenroom as gr
from tests.actors.helpers import Do, Puppet

Leak = Callable[[Any], Awaitable[object]]


async def scope(self: Any) -> None:
    self.kept = anyio.CancelScope()
    self.kept.__enter__()


async def many_scopes(self: Any) -> None:
    self.kept = [anyio.CancelScope() for _ in range(20)]
    for one in self.kept:
        one.__enter__()


async def shield(self: Any) -> None:
    self.kept = anyio.CancelScope(shield=True)
    self.kept.__enter__()


async def task_group(self: Any) -> None:
    self.kept = anyio.create_task_group()
    await self.kept.__aenter__()
    self.kept.start_soon(anyio.sleep_forever)


async def task_group_in_a_scope(self: Any) -> None:
    await scope(self)
    await task_group(self)


LEAKS = pytest.mark.parametrize("leak", [scope, many_scopes, shield, task_group, task_group_in_a_scope])


class Careless(Puppet):
    """Leaves something open at its start."""

    def __init__(self, leak: Leak) -> None:
        super().__init__()
        self.leak = leak

    async def on_start(self) -> None:
        await self.leak(self)


class Forgetful(gr.Actor):
    """Leaves something open at its end."""

    def __init__(self, leak: Leak) -> None:
        self.leak = leak

    async def on_stop(self, exit: gr.Exit) -> None:
        await self.leak(self)


async def answers(_self: Puppet) -> str:
    return "here"


def tree(*children: gr.Child) -> gr.Supervisor:
    return gr.Supervisor("app", gr.Child("neighbour", Puppet), *children, intensity=10)


async def neighbour_is_well(runtime: gr.Runtime) -> bool:
    neighbour = runtime.ref("app/neighbour")
    return await neighbour.ask(Do(answers)) == "here" and neighbour.incarnation == 1


@LEAKS
async def test_a_handler_that_leaves_something_open_harms_only_its_actor(leak: Leak) -> None:
    async with gr.Runtime(tree(gr.Child("victim", Puppet))) as runtime:
        await runtime.ref("app/victim").ask(Do(leak))
        await runtime.ref("app").terminate_child("victim")
        assert await neighbour_is_well(runtime)


@LEAKS
async def test_a_start_that_leaves_something_open_harms_only_its_actor(leak: Leak) -> None:
    async with gr.Runtime(tree(gr.Child("victim", Careless, leak))) as runtime:
        await runtime.ref("app").terminate_child("victim")
        await runtime.ref("app").restart_child("victim")
        assert await runtime.ref("app/victim").ask(Do(answers)) == "here"
        assert await neighbour_is_well(runtime)


@LEAKS
async def test_an_on_stop_that_leaves_something_open_harms_only_its_actor(leak: Leak) -> None:
    async with gr.Runtime(tree(gr.Child("victim", Forgetful, leak))) as runtime:
        await runtime.ref("app").terminate_child("victim")
        assert await neighbour_is_well(runtime)


async def test_the_exit_says_that_something_was_left_open_and_where_it_belongs() -> None:
    async with gr.Runtime(tree(gr.Child("victim", Careless, task_group))) as runtime:
        with runtime.events() as events:
            await runtime.ref("app").terminate_child("victim")
            (ended,) = [event for event in events.pending() if isinstance(event, gr.ActorEnded)]
    assert ended.exit.kind == "error"
    assert isinstance(ended.exit.cause, gr.Misuse)
    assert "context.nursery" in str(ended.exit.cause)


async def test_a_crash_with_something_left_open_is_told_as_what_it_is() -> None:
    async def fail(_self: Puppet) -> None:
        raise ValueError("the true reason")

    async with gr.Runtime(tree(gr.Child("victim", Careless, scope))) as runtime:
        with pytest.raises(gr.ActorCrashed) as crashed:
            await runtime.ref("app/victim").ask(Do(fail))
        assert isinstance(crashed.value.__cause__, ValueError)
        await runtime.ref("app/victim").ask(Do(answers))
        node = runtime.tree().find("app/victim")
        assert node is not None
        assert node.last_error == "error: ValueError: the true reason"
        assert await neighbour_is_well(runtime)


async def test_the_tasks_of_a_task_group_that_was_left_open_are_cancelled_with_the_actor() -> None:
    over = anyio.Event()

    async def task() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            over.set()

    async def leak(self: Any) -> None:
        self.kept = anyio.create_task_group()
        await self.kept.__aenter__()
        self.kept.start_soon(task)
        await anyio.sleep(1)

    async with gr.Runtime(tree(gr.Child("victim", Careless, leak))) as runtime:
        await runtime.ref("app").terminate_child("victim")
        with anyio.fail_after(1):
            await over.wait()


async def test_a_failing_task_of_a_task_group_that_was_left_open_is_the_actors_crash_with_an_explanation() -> None:
    async def fail() -> None:
        raise ValueError("in the group")

    async def leak(self: Any) -> None:
        self.kept = anyio.create_task_group()
        await self.kept.__aenter__()
        self.kept.start_soon(fail)

    async with gr.Runtime(tree(gr.Child("victim", Puppet))) as runtime:
        with runtime.events() as events:
            await runtime.ref("app/victim").ask(Do(leak))
            await anyio.sleep(1)
            (ended,) = [event for event in events.pending() if isinstance(event, gr.ActorEnded)]
        assert isinstance(ended.exit.cause, gr.Misuse)
        assert await neighbour_is_well(runtime)
