"""P24: messages and actors as attrs makes them, with slots or without; the context before `__init__`."""

from __future__ import annotations

import functools
import gc
from typing import Any

import anyio
import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import Fail, Note, Puppet, idle, tree


def test_p24_a_message_costs_no_dictionary() -> None:
    @attrs.frozen
    class Small(gr.Message[int]):
        n: int

    assert not hasattr(Small(1), "__dict__")
    assert gr.Message.__slots__ == ()


def test_p24_messages_are_values() -> None:
    assert Note("x") == Note("x")
    assert len({Note("x"), Note("x")}) == 1
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Note("x").what = "y"  # type: ignore[misc]  # under test


@pytest.mark.parametrize(
    "decorate", [attrs.define, attrs.frozen, attrs.mutable, functools.partial(attrs.define, slots=False)]
)
async def test_p24_a_message_class_is_handled_however_attrs_made_it(decorate: Any, backend: str) -> None:
    del backend

    class Plain(gr.Message[int]):
        n: int

    made = decorate(Plain)

    async def handle(self: Any, message: Any) -> int:
        return int(message.n) + 1

    handle.__annotations__["message"] = made
    actor = type("Handles", (gr.Actor,), {"handle": gr.handles(handle)})
    async with tree(gr.Child("a", actor)) as runtime:
        assert await runtime.ref("app/a").ask(made(1)) == 2


async def test_p24_an_actor_class_that_attrs_creates_twice_has_each_handler_once() -> None:
    @attrs.define
    class Counter(gr.Actor):
        total: int = 0

        @gr.handles
        async def note(self, message: Note) -> int:
            self.total += 1
            return self.total

    assert [handler.name for handler in Counter.__handlers__.values()] == ["note"]
    async with tree(gr.Child("a", Counter, 5)) as runtime:
        assert await runtime.ref("app/a").ask(Note("x")) == 6


async def test_p24_an_override_in_an_attrs_class_may_use_super() -> None:
    class Base(gr.Actor):
        @gr.handles
        async def note(self, message: Note) -> int:
            return 1

    @attrs.define
    class Derived(Base):
        more: int = 10

        async def note(self, message: Note) -> int:
            return self.more + await super().note(message)

    async with tree(gr.Child("a", Derived)) as runtime:
        assert await runtime.ref("app/a").ask(Note("x")) == 11


def test_p24_creating_classes_again_and_again_leaves_nothing_behind() -> None:
    def create() -> None:
        @attrs.frozen
        class Local(gr.Message[int]):
            n: int

        @attrs.define
        class Handles(gr.Actor):
            @gr.handles
            async def local(self, message: Local) -> int:
                return 1

    create()
    gc.collect()
    before = len(gr.Actor.__subclasses__())
    for _ in range(10):
        create()
    gc.collect()
    assert len(gr.Actor.__subclasses__()) == before


async def test_p24_the_context_is_there_in_init_without_super() -> None:
    seen: list[tuple[str, int]] = []

    class Early(gr.Actor):
        def __init__(self, name: str) -> None:
            seen.append((name, self.context.incarnation))
            self.context.ref.tell(Note("to myself"))

        @gr.handles
        async def note(self, message: Note) -> int:
            seen.append((self.context.ref.path, 0))
            return 1

    async with tree(gr.Child("a", Early, "given")):
        await idle()
        assert seen == [("given", 1), ("app/a", 0)]


async def test_p24_the_context_is_there_in_the_init_that_attrs_writes() -> None:
    @attrs.define
    class Early(gr.Actor):
        path: str = attrs.field(init=False)

        @path.default
        def _path(self) -> str:
            return self.context.ref.path

        @gr.handles
        async def note(self, message: Note) -> int:
            return len(self.path)

    async with tree(gr.Child("a", Early)) as runtime:
        assert await runtime.ref("app/a").ask(Note("x")) == len("app/a")


async def test_p24_an_actor_made_beside_another_does_not_take_its_context() -> None:
    class Helper(Puppet):
        pass

    class Owner(Puppet):
        def __init__(self) -> None:
            super().__init__()
            self.helper = Helper()
            self.log.append(hasattr(self.helper, "context"))

        async def on_start(self) -> None:
            assert self.context.ref.path == "app/a"
            assert self.log == [False]

    async with tree(gr.Child("a", Owner)):
        pass


def test_an_actor_outside_a_tree_is_an_ordinary_object_without_context() -> None:
    actor = Puppet()
    with pytest.raises(AttributeError, match="context"):
        actor.context


async def test_keyword_arguments_of_an_actor_go_through_partial() -> None:
    class Steps(Puppet):
        def __init__(self, start: int, *, step: int) -> None:
            super().__init__([start, step])

    async with tree(gr.Child("a", functools.partial(Steps, step=3), 5)) as runtime:
        assert await runtime.ref("app/a").ask(Note("x")) == 3


async def test_an_ended_actor_is_let_go_of() -> None:
    import weakref

    made: list[weakref.ref[Puppet]] = []

    def make() -> Puppet:
        actor = Puppet()
        made.append(weakref.ref(actor))
        return actor

    async with tree(gr.Child("a", make)) as runtime:
        for _ in range(5):
            runtime.ref("app/a").tell(Fail(gr.Stop()))
            await runtime.ref("app/a").ask(Note("x"))
        await anyio.sleep(1)  # until the supervisor, too, is through with the last end
        gc.collect()
        assert [reference() is not None for reference in made] == [False] * 5 + [True]
