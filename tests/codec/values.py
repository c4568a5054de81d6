"""Classes and strategies that the tests of the codec share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
from attrs import define, field, frozen
from hypothesis import strategies as st

from greenroom.codec import Codec

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    GREEN = "green"
    CRIMSON = "red"  # noqa: PIE796 - an alias: another name for the first


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Word(StrEnum):
    YES = "yes"
    NO = "no"


class Access(Flag):
    READ = 1
    WRITE = 2


class Bits(IntFlag):
    A = 1
    B = 4


class Shape(ABC):
    @abstractmethod
    def area(self) -> float: ...


@frozen
class Square(Shape):
    side: float

    def area(self) -> float:
        return self.side**2


@frozen
class Circle(Shape):
    radius: float

    def area(self) -> float:
        return math.pi * self.radius**2


@frozen
class Line:
    sku: str
    count: int = 1
    price: Decimal = Decimal("0.00")


@frozen
class GiftLine(Line):
    wish: str = ""


@frozen
class Order:
    id: UUID
    lines: list[Line]
    placed: datetime
    due: date | None
    at: time
    window: timedelta
    colour: Colour
    level: Level
    access: Access
    blob: bytes
    total: float
    notes: dict[str, str]
    counts: dict[int, int]
    by_colour: dict[Colour, tuple[int, ...]]
    by_id: dict[UUID, str]
    pair: tuple[int, str]
    labels: frozenset[str]
    numbers: set[int]
    where: Path
    mode: Literal["fast", "slow", 3]
    choice: int | str
    shape: Shape
    either: Square | Circle | None
    extra: Any
    _secret: str = "none"


@frozen
class Tree:
    name: str
    children: list[Tree]
    parent: Tree | None = None


@frozen
class Page(Generic[T]):
    items: list[T]
    next: T | None = None


@frozen
class Pair:
    left: Any
    right: Any = None


KNOWN = (Square, Circle, GiftLine, Order, Tree, Page, Pair, Colour, Level, Word, Access, Bits)


def new_codec() -> Codec:
    codec = Codec()
    codec.register(*KNOWN)
    return codec


def an_order(**changes: Any) -> Order:
    order = Order(
        id=UUID(int=7),
        lines=[Line("a", 2, Decimal("1.50")), GiftLine("b", 1, Decimal("-0"), wish="blue")],
        placed=datetime.fromisoformat("2024-02-29T12:30:00.000123+02:00"),
        due=date(2024, 3, 1),
        at=time.fromisoformat("08:30:00"),
        window=timedelta(days=-1, seconds=5),
        colour=Colour.GREEN,
        level=Level.HIGH,
        access=Access.READ | Access.WRITE,
        blob=b"\x00\xff",
        total=0.1,
        notes={"b": "é", "a": ""},
        counts={3: 1, -1: 2},
        by_colour={Colour.RED: (1, 2), Colour.GREEN: ()},
        by_id={UUID(int=1): "one"},
        pair=(1, "x"),
        labels=frozenset({"q", "p"}),
        numbers={5, 1},
        where=Path("/tmp/ä b"),
        mode=3,
        choice="7",
        shape=Circle(2.0),
        either=Square(1.5),
        extra=[1, 1.0, True, None, (Level.LOW, {"k": Line("c")}), {1: {2, 3}}],
    )
    return attrs.evolve(order, **changes)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types, at every depth."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, Decimal):
        return bool(one.as_tuple() == other.as_tuple())
    if isinstance(one, datetime | time):
        return same((one.isoformat(), one.fold), (other.isoformat(), other.fold)) and same_zone(
            one.tzinfo, other.tzinfo
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            any(same(key, key2) and same(value, value2) for key2, value2 in other.items()) for key, value in one.items()
        )
    if isinstance(one, set | frozenset):
        return len(one) == len(other) and all(any(same(item, item2) for item2 in other) for item in one)
    if attrs.has(type(one)):
        return all(same(getattr(one, name.name), getattr(other, name.name)) for name in attrs.fields(type(one)))
    return bool(one == other)


def same_zone(one: Any, other: Any) -> bool:
    return type(one) is type(other) and str(one) == str(other) and bool(one == other)


# ------------------------------------------------------------------------------------------------------- strategies

ZONES = st.one_of(
    st.none(),
    st.just(UTC),
    st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("UTC")]),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone),
    st.just(timezone(timedelta(hours=1), "CET")),
)
FOLDS = st.sampled_from([0, 0, 0, 1])
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
PATHS = st.lists(TEXT.filter(lambda text: "\x00" not in text), min_size=1, max_size=3)

LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    None: st.none(),
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(),
    str: TEXT,
    bytes: st.binary(max_size=8),
    Decimal: st.decimals(),
    datetime: st.builds(lambda moment, fold: moment.replace(fold=fold), st.datetimes(timezones=ZONES), FOLDS),
    date: st.dates(),
    time: st.builds(lambda moment, fold: moment.replace(fold=fold), st.times(timezones=ZONES), FOLDS),
    timedelta: st.timedeltas(),
    UUID: st.uuids(),
    Path: PATHS.map(lambda parts: Path(*parts)),
    PurePosixPath: PATHS.map(lambda parts: PurePosixPath(*parts)),
    PureWindowsPath: PATHS.map(lambda parts: PureWindowsPath(*parts)),
    Colour: st.sampled_from(Colour),
    Level: st.sampled_from(Level),
    Word: st.sampled_from(Word),
    Access: st.sampled_from([Access(0), Access.READ, Access.READ | Access.WRITE]),
    Bits: st.integers(0, 7).map(Bits),
}
UNHASHABLE_NAN = (float, Decimal)
HASHABLE: dict[Any, st.SearchStrategy[Any]] = {
    hint: values for hint, values in LEAVES.items() if hint not in UNHASHABLE_NAN
}

leaf_values = st.one_of(list(LEAVES.values()))
hashable_values = st.recursive(
    st.one_of(list(HASHABLE.values())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Circle, st.floats(allow_nan=False)),
    ),
    max_leaves=4,
)
any_values = st.recursive(
    leaf_values,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(hashable_values, max_size=3),
        st.frozensets(hashable_values, max_size=3),
        st.dictionaries(hashable_values, inner, max_size=3),
        st.dictionaries(st.sampled_from(["$", "=", "a", "b"]), inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Page, st.lists(inner, max_size=2), inner),
        st.builds(GiftLine, TEXT, st.integers(), st.decimals(allow_nan=False), TEXT),
    ),
    max_leaves=8,
)
"""Values that a field typed Any may hold."""


def _container(inner: tuple[Any, st.SearchStrategy[Any]]) -> list[tuple[Any, st.SearchStrategy[Any]]]:
    hint, values = inner
    return [
        (list[hint], st.lists(values, max_size=3)),  # type: ignore[valid-type]
        (tuple[hint, ...], st.lists(values, max_size=3).map(tuple)),  # type: ignore[valid-type]
        (tuple[hint, int], st.tuples(values, st.integers())),  # type: ignore[valid-type]
        (dict[str, hint], st.dictionaries(st.sampled_from(["$", "=", "a", "b"]), values, max_size=3)),  # type: ignore[valid-type]
        (dict[int, hint], st.dictionaries(st.integers(), values, max_size=3)),  # type: ignore[valid-type]
        (dict[Colour, hint], st.dictionaries(st.sampled_from(Colour), values, max_size=3)),  # type: ignore[valid-type]
        (hint | None if hint is not None else None, st.none() | values),
        (hint | tuple[int, ...] if hint is not None else None, values),
        (Page[hint], st.builds(Page, st.lists(values, max_size=2), values)),  # type: ignore[valid-type]
    ]


def _sets(hint: Any) -> list[tuple[Any, st.SearchStrategy[Any]]]:
    return [
        (set[hint], st.sets(HASHABLE[hint], max_size=3)),
        (frozenset[hint], st.frozensets(HASHABLE[hint], max_size=3)),
    ]


Typed = tuple[Any, st.SearchStrategy[Any]]

typed: st.SearchStrategy[Typed] = st.recursive(
    st.one_of(
        st.sampled_from(list(LEAVES.items())),
        st.sampled_from(list(HASHABLE)).flatmap(lambda hint: st.sampled_from(_sets(hint))),
        st.just((Any, any_values)),
        st.just((Shape, st.builds(Square, st.floats()) | st.builds(Circle, st.floats()))),
        st.just((Line, st.builds(GiftLine, TEXT) | st.builds(Line, TEXT))),
        st.just((Square | Circle, st.builds(Square, st.floats()) | st.builds(Circle, st.floats()))),
        st.just((int | str | bytes, st.integers() | TEXT | st.binary(max_size=4))),
        st.just((Literal["a", 1, True], st.sampled_from(["a", 1, True]))),
    ),
    lambda inner: inner.flatmap(lambda pair: st.sampled_from(_container(pair))),
    max_leaves=3,
)
"""Annotations, each with a strategy for values of it."""


@st.composite
def class_values(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """A value of an attrs class made for the occasion, with one to four fields of generated types."""
    fields = draw(st.dictionaries(st.sampled_from(["a", "b", "_c", "D"]), typed, min_size=1, max_size=4))
    make = define if draw(st.booleans()) else frozen
    body = {name: field() for name in fields}
    annotations = {name: hint for name, (hint, _) in fields.items()}
    cls = make(type("Made", (), {**body, "__annotations__": annotations, "__module__": __name__}))
    return cls(**{name.removeprefix("_"): draw(values) for name, (_, values) in fields.items()})
