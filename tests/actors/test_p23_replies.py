"""P23: a handler's return annotation against the reply its message promises; P25: where its class can run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import tree

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheTypeChecker


@attrs.frozen
class Add(gr.Message[int]):
    n: int


@attrs.frozen
class Fetch(gr.Message["Forward"]):
    pass


@attrs.frozen
class Forward:
    text: str


def test_p23_a_return_annotation_that_contradicts_the_reply_names_both() -> None:
    with pytest.raises(gr.BadHandler, match=r"Broken.add returns str, but Add is a Message\[int\]: make the two agree"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Add) -> str:
                return ""


def test_p23_a_handler_that_returns_nothing_contradicts_a_reply() -> None:
    with pytest.raises(gr.BadHandler, match=r"returns None, but Add is a Message\[int\]"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Add) -> None: ...


def test_p23_a_handler_that_returns_something_contradicts_a_message_without_reply() -> None:
    class Quiet(gr.Message[None]):
        pass

    with pytest.raises(gr.BadHandler, match=r"returns int, but Quiet is a Message\[None\]"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Quiet) -> int:
                return 1


def test_p23_the_reply_of_an_inherited_message_is_compared() -> None:
    class Sub(Add):
        pass

    with pytest.raises(gr.BadHandler, match=r"returns str, but Sub is a Message\[int\]"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Sub) -> str:
                return ""


def test_p23_a_forward_reference_of_the_message_is_resolved_for_the_comparison() -> None:
    class Fits(gr.Actor):
        @gr.handles
        async def fetch(self, message: Fetch) -> Forward:
            return Forward("")

    assert set(Fits.__handlers__) == {Fetch}
    with pytest.raises(gr.BadHandler, match=r"returns str, but Fetch is a Message\[Forward\]"):

        class Broken(gr.Actor):
            @gr.handles
            async def fetch(self, message: Fetch) -> str:
                return ""


def test_p23_a_reply_that_only_the_type_checker_knows_is_compared_by_name() -> None:
    class Price(gr.Message["OnlyForTheTypeChecker"]):
        pass

    class Fits(gr.Actor):
        @gr.handles
        async def price(self, message: Price) -> OnlyForTheTypeChecker:
            raise gr.Rejected

    assert set(Fits.__handlers__) == {Price}
    with pytest.raises(gr.BadHandler, match=r"returns int, but Price is a Message\[OnlyForTheTypeChecker\]"):

        class Broken(gr.Actor):
            @gr.handles
            async def price(self, message: Price) -> int:
                return 1


def test_p23_without_a_return_annotation_nothing_is_compared() -> None:
    async def add(self: Any, message: Add):  # type: ignore[no-untyped-def]  # under test
        return ""

    actor: Any = type("Loose", (gr.Actor,), {"add": gr.handles(add)})
    assert set(actor.__handlers__) == {Add}


def test_p23_a_handler_that_always_raises_may_say_so() -> None:
    from typing import NoReturn

    class Refuses(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> NoReturn:
            raise gr.Rejected

    assert set(Refuses.__handlers__) == {Add}


def test_p23_a_handler_of_two_messages_may_return_what_either_promises() -> None:
    class Name(gr.Message[str]):
        pass

    class Both(gr.Actor):
        @gr.handles
        async def both(self, message: Add | Name) -> int | str:
            return 1

    assert set(Both.__handlers__) == {Add, Name}


def test_p23_the_result_of_a_blocking_handler_is_compared_too() -> None:
    with pytest.raises(gr.BadHandler, match=r"returns str, but Add is a Message\[int\]"):

        class Broken(gr.Actor):
            @gr.handles
            def add(self, message: Add) -> str:
                return ""


@pytest.mark.parametrize("hook", ["on_start", "on_stop"])
def test_p23_a_plain_hook_beside_async_handlers_is_refused(hook: str) -> None:
    def plain(self: gr.Actor, *_: object) -> None: ...

    async def add(self: Any, message: Add) -> int:
        return 1

    with pytest.raises(gr.BadHandler, match=rf"Broken.{hook} is a plain `def`; beside `async def` handlers it is one"):
        type("Broken", (gr.Actor,), {"add": gr.handles(add), hook: plain})


def test_p25_a_class_with_a_plain_hook_and_no_handlers_is_a_blocking_one() -> None:
    class Opens(gr.Actor):
        def on_start(self) -> object:  # type: ignore[override]  # under test
            return "opened"

    with pytest.raises(gr.BadSpec, match="isolation='thread' or 'process'"):
        gr.Child("a", Opens)
    assert gr.Child("a", Opens, isolation="thread").isolation == "thread"


def test_p25_an_async_class_is_refused_on_a_thread_and_a_blocking_one_as_a_task() -> None:
    class Async(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return 1

    class Blocking(gr.Actor):
        @gr.handles
        def add(self, message: Add) -> int:
            return 1

    with pytest.raises(gr.BadSpec, match=r"child 'a'.*Async has `async def` handlers: isolation='task' or 'process'"):
        gr.Child("a", Async, isolation="thread")
    with pytest.raises(gr.BadSpec, match=r"child 'b'.*Blocking has plain `def` handlers: isolation='thread' or 'proc"):
        gr.Child("b", Blocking)
    assert [gr.Child("a", Async).isolation, gr.Child("b", Blocking, isolation="thread").isolation] == ["task", "thread"]


async def test_p25_a_factory_that_makes_a_blocking_actor_fails_the_start_of_a_task_child() -> None:
    class Blocking(gr.Actor):
        @gr.handles
        def add(self, message: Add) -> int:
            return 1

    with pytest.raises(gr.StartFailed, match="give 'app/b' isolation='thread' or 'process'") as caught:
        async with tree(gr.Child("b", functools.partial(lambda cls: cls(), Blocking))):
            raise AssertionError("it must not start")
    assert isinstance(caught.value.__cause__, TypeError)


async def test_p25_a_factory_that_makes_no_actor_fails_the_start() -> None:
    def factory() -> Any:
        return "not an actor"

    with pytest.raises(gr.StartFailed, match=r"the factory of 'app/b' made a str; it has to make a gr.Actor"):
        async with tree(gr.Child("b", factory)):
            raise AssertionError("it must not start")
