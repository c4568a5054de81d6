"""P23: what `@handles` finds out when a class is created, and what it says when that cannot work."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Union

import attrs
import pytest

import greenroom as gr
from tests.actors.helpers import tree

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTheTypeChecker

T = TypeVar("T")


@attrs.frozen
class Add(gr.Message[int]):
    n: int


@attrs.frozen
class Get(gr.Message[int]):
    pass


@attrs.frozen
class Forward:
    text: str


async def test_p23_a_handler_finds_a_message_of_its_module() -> None:
    class Counter(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return message.n + 1

    async with tree(gr.Child("counter", Counter)) as runtime:
        assert await runtime.ref("app/counter").ask(Add(1)) == 2


async def test_p23_a_handler_finds_a_message_defined_in_the_same_function() -> None:
    @attrs.frozen
    class Local(gr.Message[str]):
        pass

    class Answers(gr.Actor):
        @gr.handles
        async def answer(self, message: Local) -> str:
            return "found"

    async with tree(gr.Child("actor", Answers)) as runtime:
        assert await runtime.ref("app/actor").ask(Local()) == "found"


async def test_p23_a_handler_finds_a_message_of_an_outer_function_that_has_not_used_it_itself() -> None:
    @attrs.frozen
    class Local(gr.Message[str]):
        pass

    def define() -> type[gr.Actor]:
        class Answers(gr.Actor):
            @gr.handles
            async def answer(self, message: Local) -> str:
                return "found"

        return Answers

    async with tree(gr.Child("actor", define())) as runtime:
        assert await runtime.ref("app/actor").ask(Local()) == "found"


async def test_p23_a_handler_finds_a_message_defined_in_the_body_of_its_own_class() -> None:
    class Answers(gr.Actor):
        @attrs.frozen
        class Local(gr.Message[str]):
            pass

        @gr.handles
        async def answer(self, message: Local) -> str:
            return "found"

    async with tree(gr.Child("actor", Answers)) as runtime:
        assert await runtime.ref("app/actor").ask(Answers.Local()) == "found"


def _define_beside_a_caller() -> type[gr.Actor]:
    class Counter(gr.Actor):
        @gr.handles
        async def add(self, message: Add) -> int:
            return message.n

    return Counter


def test_p23_a_variable_of_the_caller_is_not_taken_for_a_definition() -> None:
    Add = "a variable that happens to have the name of a message"  # noqa: N806 - the point of the test

    assert "happens" in Add
    assert set(_define_beside_a_caller().__handlers__) == {globals()["Add"]}


@pytest.mark.parametrize("spelling", ["Add | Get", "Union[Add, Get]", "gr.Message[int]"])
async def test_p23_each_member_of_a_union_is_handled(spelling: str, backend: str) -> None:
    del backend

    async def either(self: Any, message: Any) -> int:
        return len(type(message).__name__)

    either.__annotations__["message"] = spelling
    actor = type("Either", (gr.Actor,), {"either": gr.handles(either)})
    async with tree(gr.Child("actor", actor)) as runtime:
        ref = runtime.ref("app/actor")
        assert [await ref.ask(Add(1)), await ref.ask(Get())] == [3, 3]


def test_p23_union_of_typing_is_understood_where_annotations_are_objects() -> None:
    async def either(self: Any, message: Any) -> int:
        return 1

    either.__annotations__["message"] = Union[Add, Get]  # noqa: UP007 - the old spelling is under test
    actor: Any = type("Either", (gr.Actor,), {"either": gr.handles(either)})
    assert set(actor.__handlers__) == {Add, Get}


def test_p23_a_missing_annotation_is_named_with_its_parameter() -> None:
    async def add(self: Any, message) -> int:  # type: ignore[no-untyped-def]  # under test
        return 1

    with pytest.raises(gr.BadHandler, match=r"handler .*add: annotate 'message' with the type of the message"):
        gr.handles(add)


def test_p23_an_annotation_only_for_the_type_checker_is_named_with_the_way_out() -> None:
    with pytest.raises(gr.BadHandler, match=r"'OnlyForTheTypeChecker' cannot be resolved .*not under TYPE_CHECKING"):

        class Broken(gr.Actor):
            @gr.handles  # type: ignore[type-var]  # under test
            async def add(self, message: OnlyForTheTypeChecker) -> int:
                return 1


def test_p23_a_message_defined_below_its_actor_is_named_with_the_way_out() -> None:
    with pytest.raises(gr.BadHandler, match=r"'Later' cannot be resolved .*Define or import the message class above"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Later) -> int:
                return 1

    @attrs.frozen
    class Later(gr.Message[int]):
        pass


@pytest.mark.parametrize(
    ("annotation", "name"),
    [(int, "int"), ("int", "int"), (Add | None, "NoneType"), (Forward, "Forward"), (list[Add], "list"), (T, "T")],
)
def test_p23_what_is_no_message_is_refused_by_name(annotation: Any, name: str) -> None:
    async def add(self: Any, message: Any) -> int:
        return 1

    add.__annotations__["message"] = annotation
    with pytest.raises(gr.BadHandler, match=rf"add: .*{name}.* is not a message: derive it from gr.Message\[Reply\]"):
        gr.handles(add)


def _none(self: Any) -> int:
    return 1


def _three(self: Any, message: Add, more: int = 1) -> int:
    return 1


def _keyword(self: Any, *, message: Add) -> int:
    return 1


def _many(self: Any, *message: Add) -> int:
    return 1


def _keywords(self: Any, **message: Add) -> int:
    return 1


@pytest.mark.parametrize("method", [_none, _three, _keyword, _many, _keywords])
def test_p23_a_handler_takes_self_and_one_positional_message(method: Callable[..., Any]) -> None:
    with pytest.raises(gr.BadHandler, match=rf"{method.__name__}.* takes `self` and one message"):
        gr.handles(method)


def test_p23_a_static_method_is_no_handler() -> None:
    with pytest.raises(gr.BadHandler, match=r"has the parameters \(message: .*takes `self` and one message"):

        class Broken(gr.Actor):
            @gr.handles  # type: ignore[arg-type]  # under test
            @staticmethod
            def add(message: Add) -> int:
                return 1


def test_p23_a_handler_that_yields_is_refused() -> None:
    with pytest.raises(gr.BadHandler, match=r"add.*yields"):

        class Broken(gr.Actor):
            @gr.handles
            async def add(self, message: Add) -> Any:
                yield 1


@pytest.mark.parametrize("concurrency", [0, -1, 1.5, True, "8", None])
def test_p23_concurrency_is_a_whole_number_above_zero(concurrency: Any) -> None:
    with pytest.raises(gr.BadHandler, match=r"@handles\(concurrency=.*whole number above 0"):
        gr.handles(concurrency=concurrency)


def test_p23_a_number_in_place_of_the_method_is_named_with_the_right_spelling() -> None:
    with pytest.raises(gr.BadHandler, match=r"@handles\(8\).*concurrency=8"):
        gr.handles(8)  # type: ignore[call-overload]  # under test


def test_p23_empty_brackets_are_allowed() -> None:
    class Counter(gr.Actor):
        @gr.handles()
        async def add(self, message: Add) -> int:
            return 1

    assert set(Counter.__handlers__) == {Add}


def test_p23_a_plain_handler_cannot_be_concurrent() -> None:
    def add(self: Any, message: Add) -> int:
        return 1

    with pytest.raises(gr.BadHandler, match="concurrency needs `async def`"):
        gr.handles(concurrency=2)(add)  # type: ignore[arg-type]  # under test


def test_p23_a_decorated_method_is_resolved_where_it_was_written() -> None:
    class Counter(gr.Actor):
        @gr.handles
        @_decorated_elsewhere
        def add(self, message: Add) -> int:
            return 1

    assert set(Counter.__handlers__) == {Add}


def _decorated_elsewhere(method: Any) -> Any:
    """A decorator out of a module that does not know the message."""

    def call(*args: Any) -> Any:
        return method(*args)

    wrapper = types.FunctionType(call.__code__, {}, closure=(types.CellType(method),))
    return functools.update_wrapper(wrapper, method)


def test_p23_a_class_made_in_a_module_nobody_can_import_is_resolved() -> None:
    names: dict[str, Any] = {"__name__": "no.such.module", "gr": gr}
    source = (
        "class Ping(gr.Message['int']): ...\n"
        "class Actor(gr.Actor):\n"
        "    @gr.handles\n"
        "    async def ping(self, message: 'Ping') -> 'int': return 1\n"
    )
    exec(source, names)
    assert set(names["Actor"].__handlers__) == {names["Ping"]}
