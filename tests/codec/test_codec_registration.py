"""The walk over a class's fields: what would be lost is refused by name, all of it at once, before anything is encoded."""

from __future__ import annotations

import io
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar, Unpack

import attrs
import pytest
from attrs import define, field, frozen

from greenroom.codec import Codec
from greenroom.errors import NotEncodable, RemoteError
from tests.codec.values import Circle, Line, Page, Shape, Square, same

T = TypeVar("T")
UserId = NewType("UserId", int)


class NotOurs:
    """No attrs class, and nothing derives from it."""


@dataclass
class Data:
    n: int


class Asked(Generic[T]):
    """Like gr.Message: a base without fields, typed by the reply."""

    __slots__ = ()


@frozen
class Question(Asked[str]):
    n: int


class Named(NamedTuple):
    n: int


class Keyed(TypedDict):
    n: int


class Quacks(Protocol):
    def quack(self) -> None: ...


class Slotted:
    __slots__ = ("hidden",)


class EmptyEnum(Enum):
    pass


def refusal(*classes: type[Any], **names: Any) -> NotEncodable:
    with pytest.raises(NotEncodable) as caught:
        Codec().register(*classes, names=names)
    return caught.value


def holding(hint: Any) -> type[Any]:
    cls: type[Any] = attrs.make_class("Holder", {"it": field(type=hint)}, frozen=True)
    return cls


def test_a_field_with_init_false_is_refused_by_name() -> None:
    @define
    class Counted:
        n: int
        seen: int = field(init=False, default=0)

    assert "Counted.seen: has init=False" in str(refusal(Counted))


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (Callable[[int], int], "a function cannot be encoded"),
        (io.TextIOWrapper, "TextIOWrapper cannot be encoded"),
        (type(threading.Lock()), "lock cannot be encoded"),
        (NotOurs, "NotOurs cannot be encoded: it is neither an attrs class nor a base"),
        (Data, "Data cannot be encoded"),
        (Named, "Named cannot be encoded"),
        (Keyed, "Keyed is a TypedDict"),
        (Quacks, "Quacks is a Protocol that isinstance cannot test"),
        (Shape, "Shape is abstract, and no class that derives from it is registered: register those first"),
        (EmptyEnum, "EmptyEnum is abstract"),
        (bytearray, "bytearray cannot be encoded"),
        (complex, "complex cannot be encoded"),
        (type[int], "type cannot be encoded"),
        (ValueError, "comes back as RemoteError, which is no ValueError: annotate it as Exception"),
        (tuple[int, Unpack[tuple[str, ...]]], "has an unpacked part"),
    ],
    ids=str,
)
def test_a_type_that_could_not_come_back_is_refused_by_the_name_of_its_field(hint: Any, words: str) -> None:
    for outer in (hint, list[hint], dict[str, hint], hint | None):
        message = str(refusal(holding(outer)))
        assert "Holder.it: " in message
        assert words in message


def test_all_problems_of_a_class_and_of_those_it_holds_are_named_at_once() -> None:
    @define
    class Inner:
        lock: threading.Thread
        late: int = field(init=False, default=0)

    @define
    class Outer:
        inner: list[Inner]
        call: Callable[[], None]

    error = refusal(Outer, Inner=Inner, Callable=Callable)
    assert error.subject == "Outer"
    assert len(error.problems) == 3
    for name in ("Inner.lock", "Inner.late", "Outer.call"):
        assert sum(problem.startswith(f"{name}: ") for problem in error.problems) == 1


def test_a_refused_class_leaves_nothing_registered() -> None:
    @frozen
    class Good:
        n: int

    @frozen
    class Bad:
        good: Good
        bad: NotOurs

    codec = Codec()
    with pytest.raises(NotEncodable):
        codec.register(Good, Bad, names=locals())
    assert codec.tag_of(Good) is None
    with pytest.raises(NotEncodable):
        codec.encode(Good(1))


def test_check_says_the_same_as_register_and_registers_nothing() -> None:
    codec = Codec()
    codec.check(Line)
    assert codec.tag_of(Line) is None
    with pytest.raises(NotEncodable) as caught:
        codec.check(holding(NotOurs))
    assert "Holder.it: NotOurs" in str(caught.value)


def test_check_takes_any_annotation() -> None:
    Codec().check(dict[str, list[Line] | None])
    with pytest.raises(NotEncodable, match="a function cannot be encoded"):
        Codec().check(list[Callable[[], None]])


def test_a_class_that_is_no_attrs_class_is_refused_with_the_way_out() -> None:
    assert "Data is not an attrs class: decorate it with @attrs.frozen" in str(refusal(Data))


def test_an_undecorated_subclass_of_an_attrs_class_is_refused() -> None:
    class Plain(Line):
        pass

    assert "Plain is not an attrs class" in str(refusal(Plain))


def test_an_abstract_class_is_not_registered_itself() -> None:
    @frozen
    class Base(ABC):
        @abstractmethod
        def go(self) -> None: ...

    assert "Base is abstract: register the concrete classes" in str(refusal(Base))


def test_a_base_class_is_a_field_type_once_a_class_that_derives_from_it_is_registered() -> None:
    holder = holding(Shape)
    codec = Codec()
    codec.register(holder, Circle)  # in one call, in any order
    assert codec.decode(codec.encode(holder(Circle(1.0)))) == holder(Circle(1.0))


def test_a_plain_generic_base_is_a_field_type_once_a_class_that_derives_from_it_is_registered() -> None:
    holder = holding(Asked[Any])
    assert "Holder.it: Asked cannot be encoded" in str(refusal(holder))
    codec = Codec()
    codec.register(Question, holder)
    assert codec.decode(codec.encode(holder(Question(1)))) == holder(Question(1))


def test_slots_that_are_no_fields_are_refused() -> None:
    @frozen
    class Derived(Slotted):
        n: int

    assert "Derived.hidden: is a slot of Slotted but no attrs field" in str(refusal(Derived))


def test_content_inherited_from_a_builtin_type_is_refused() -> None:
    tags = attrs.make_class("Tags", {"name": field(type=str)}, bases=(list,))
    assert "Tags is a list, whose own content is no attrs field" in str(refusal(tags))


def test_an_attrs_exception_is_refused() -> None:
    @define
    class Broken(Exception):
        code: int

    assert "Broken is an exception: those need no registration" in str(refusal(Broken))


def test_an_unknown_name_in_an_annotation_is_named_with_the_way_out() -> None:
    cls = holding("list[Nowhere]")
    message = str(refusal(cls))
    assert "Holder.it: " in message
    assert "'Nowhere'" in message
    assert "names=locals()" in message


def test_an_annotation_that_is_no_type_is_refused_by_name() -> None:
    assert "Holder.it: its annotation '1 +' is not a type" in str(refusal(holding("1 +")))


def test_classes_made_in_a_function_are_registered_with_its_locals() -> None:
    @frozen
    class Part:
        n: int

    @frozen
    class Whole:
        parts: list[Part]

    assert "names 'Part'" in str(refusal(Whole))
    codec = Codec()
    codec.register(Whole, names=locals())
    assert codec.decode(codec.encode(Whole([Part(1)]))) == Whole([Part(1)])


def test_a_generic_class_that_grows_for_ever_is_refused() -> None:
    @frozen
    class Grows(Page[T]):
        more: Grows[list[T]] | None = None

    assert "its type goes on for ever" in str(refusal(Grows, T=T))


def test_registering_twice_is_registering_once() -> None:
    codec = Codec()
    codec.register(Line)
    codec.register(Line, Line)
    assert codec.tag_of(Line) == "tests.codec.values:Line"


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Sequence[Line], [Line("a")]),
        (Sequence[int], (1, 2)),
        (Mapping[str, int], {"a": 1}),
        (AbstractSet[int], frozenset({1})),
        (list, [1, (2,)]),
        (tuple, (1, "a")),
        (tuple[()], ()),
        (dict, {1: [2]}),
        (UserId, 5),
        (object, Line("a")),
        (Literal[None, b"x"], b"x"),
        (int | list[int] | dict[str, int], {"a": 1}),
        (Page[Square] | Page[int], Page([1])),
        (T, Line("a")),
    ],
    ids=str,
)
def test_these_annotations_are_understood(hint: Any, value: Any) -> None:
    holder = holding(hint)
    codec = Codec()
    codec.register(holder, Line, Page)
    assert same(codec.decode(codec.encode(holder(value))), holder(value))


@pytest.mark.parametrize("hint", [BaseException, Exception, RemoteError])
def test_a_field_may_be_typed_as_an_exception_that_remote_error_is_one_of(hint: type[BaseException]) -> None:
    Codec().register(holding(hint))


def test_a_field_without_annotation_holds_anything() -> None:
    untyped = attrs.make_class("Untyped", ["it"], frozen=True)
    codec = Codec()
    codec.register(untyped)
    assert codec.decode(codec.encode(untyped((1, b"x")))) == untyped((1, b"x"))


def test_registering_and_encoding_from_many_threads_loses_nothing() -> None:
    codec = Codec()
    classes = [attrs.make_class(f"Made{number}", {"it": field(type=Line)}, frozen=True) for number in range(40)]
    failures: list[BaseException] = []
    barrier = threading.Barrier(4)

    def work(part: int) -> None:
        try:
            barrier.wait()
            for cls in classes[part::4]:
                codec.register(cls)
                assert codec.decode(codec.encode(cls(Line("a")))) == cls(Line("a"))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(codec.tag_of(cls) for cls in classes)
