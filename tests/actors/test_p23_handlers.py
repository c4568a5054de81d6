"""P23: what `@handles` finds out when a class is created, and what it says when that cannot work."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Union

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
class Fetch(gr.Message["Forward"]):
    pass


@attrs.frozen
class Forward:
    text: str


@attrs.frozen
class Box(gr.Message[T], Generic[T]):
    content: T


# ----------------------------------------------------------------------------------------------------- resolving


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


# ----------------------------------------------------------------------------------- one class, its bases, its types


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


# ------------------------------------------------------------------------------------------------- the reply's type


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
