"""P23: which handler of a class, its bases and its mixtures takes which message."""

from __future__ import annotations

from typing import Generic, TypeVar

import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import tree

T = TypeVar("T")


@attrs.frozen
class Add(gr.Message[int]):
    n: int


@attrs.frozen
class Get(gr.Message[int]):
    pass


@attrs.frozen
class Box(gr.Message[T], Generic[T]):
    content: T


def test_p23_two_handlers_of_one_message_are_refused_with_both_names() -> None:
    with pytest.raises(gr.BadHandler, match="Broken: both 'add' and 'plus' handle Add; keep one"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Add) -> int:
                return 1

            @gr.handles
            async def plus(self, message: Add | Get) -> int:
                return 2


def test_p23_def_and_async_def_do_not_mix_in_one_class() -> None:
    with pytest.raises(gr.BadHandler, match="Broken: 'get' is a plain `def` and 'add' an `async def`"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Add) -> int:
                return 1

            @gr.handles
            def get(self, message: Get) -> int:
                return 2


def test_p23_def_and_async_def_do_not_mix_over_a_base_class() -> None:
    class Base(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return 1

    with pytest.raises(gr.BadHandler, match="'get' is a plain `def` and 'add' an `async def`"):

        class Broken(Base):
            @gr.handles
            def get(self, message: Get) -> int:
                return 2


async def test_p23_a_subclass_overrides_a_handler_by_its_name() -> None:
    class Base(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return 1

    class Derived(Base):
        async def add(self, message: Add) -> int:
            return 10 + await super().add(message)

    async with tree(gr.Child("actor", Derived)) as runtime:
        assert await runtime.ref("app/actor").ask(Add(1)) == 11


def test_p23_an_override_must_be_of_the_same_kind() -> None:
    class Base(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return 1

    with pytest.raises(gr.BadHandler, match=r"Broken.add overrides a handler: one is `def`, the other `async def`"):

        class Broken(Base):
            def add(self, message: Add) -> int:  # type: ignore[override]  # under test
                return 2


async def test_p23_a_subclass_handles_a_message_of_its_base_by_another_method() -> None:
    class Base(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return 1

    class Derived(Base):
        @gr.handles
        async def plus(self, message: Add) -> int:
            return 2

    async with tree(gr.Child("base", Base), gr.Child("derived", Derived)) as runtime:
        answers = [await runtime.ref(f"app/{name}").ask(Add(1)) for name in ("base", "derived")]
    assert answers == [1, 2]


async def test_p23_an_override_may_turn_a_handler_concurrent() -> None:
    class Base(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return 1

    class Derived(Base):
        @gr.handles(concurrency=3)
        async def add(self, message: Add) -> int:
            return 2

    assert Derived.__handlers__[Add].concurrency == 3


async def test_p23_the_exact_type_comes_before_a_base_of_the_message() -> None:
    @attrs.frozen
    class AddTwice(Add):
        pass

    class Counter(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return message.n

        @gr.handles
        async def add_twice(self, message: AddTwice) -> int:
            return 2 * message.n

    async with tree(gr.Child("actor", Counter)) as runtime:
        ref = runtime.ref("app/actor")
        assert [await ref.ask(Add(5)), await ref.ask(AddTwice(5))] == [5, 10]


async def test_p23_a_message_without_a_handler_of_its_own_goes_along_its_mro() -> None:
    class Far(gr.Message[str]):
        pass

    class Near(Far):
        pass

    class Sent(Near):
        pass

    class Answers(gr.Actor):
        @gr.handles
        async def far(self, message: Far) -> str:
            return "far"

        @gr.handles
        async def near(self, message: Near) -> str:
            return "near"

    async with tree(gr.Child("actor", Answers)) as runtime:
        ref = runtime.ref("app/actor")
        assert [await ref.ask(Sent()), await ref.ask(Sent()), await ref.ask(Far())] == ["near", "near", "far"]


async def test_p23_what_one_class_learns_of_a_type_does_not_reach_its_subclass() -> None:
    class Sub(Add):
        pass

    class Base(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return 1

    class Derived(Base):
        @gr.handles
        async def sub(self, message: Sub) -> int:
            return 2

    async with tree(gr.Child("base", Base), gr.Child("derived", Derived)) as runtime:
        answers = [await runtime.ref(f"app/{name}").ask(Sub(1)) for name in ("base", "derived", "base")]
    assert answers == [1, 2, 1]


async def test_p23_a_generic_message_is_handled_whatever_its_argument() -> None:
    class Boxes(gr.Actor):
        @gr.handles
        async def box(self, message: Box[int]) -> int:
            return message.content

    async with tree(gr.Child("actor", Boxes)) as runtime:
        assert await runtime.ref("app/actor").ask(Box(7)) == 7
