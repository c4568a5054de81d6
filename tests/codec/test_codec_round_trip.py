"""What is decoded equals what was encoded, and is of the same types at every depth."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo

import pytest
from attrs import define, field, frozen
from hypothesis import given

from greenroom.codec import Codec
from tests.codec.values import (
    Circle,
    Colour,
    GiftLine,
    Level,
    Line,
    Order,
    Page,
    Pair,
    Square,
    Tree,
    Word,
    an_order,
    any_values,
    class_values,
    new_codec,
    same,
)

CODEC = new_codec()


def sorted_tuple(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(values))


def back(value: Any, codec: Codec = CODEC) -> Any:
    return codec.decode(codec.encode(value))


@given(any_values)
def test_any_value_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    assert same(back(value), value)


@given(any_values, any_values)
def test_fields_typed_any_keep_the_types_of_what_they_hold(left: Any, right: Any) -> None:
    assert same(back(Pair(left, right)), Pair(left, right))


@given(class_values())
def test_values_of_generated_classes_come_back_equal_and_of_the_same_types(value: Any) -> None:
    codec = new_codec()
    codec.register(type(value))
    assert same(back(value, codec), value)


def test_a_value_with_a_field_of_every_kind_comes_back() -> None:
    assert same(back(an_order()), an_order())


def test_private_fields_come_back() -> None:
    order = an_order(secret="deep")
    assert back(order)._secret == "deep"


def test_a_subclass_in_a_field_of_its_base_keeps_its_own_type() -> None:
    order = an_order(lines=[GiftLine("a", wish="w"), Line("b")])
    assert [type(line) for line in back(order).lines] == [GiftLine, Line]


def test_a_field_of_an_abstract_base_keeps_the_concrete_type() -> None:
    assert type(back(an_order(shape=Square(1.0))).shape) is Square


def test_members_of_a_union_with_equal_fields_are_told_apart() -> None:
    @frozen
    class Left:
        n: int

    @frozen
    class Right:
        n: int

    @frozen
    class Both:
        side: Left | Right

    codec = Codec()
    codec.register(Both, names=locals())
    assert [type(back(Both(side(1)), codec).side) for side in (Left, Right)] == [Left, Right]


def test_a_class_that_holds_itself_comes_back() -> None:
    tree = Tree("root", [Tree("leaf", []), Tree("leaf", [], Tree("up", []))])
    assert back(tree) == tree


def test_a_class_may_name_itself_by_self() -> None:
    @frozen
    class Node:
        label: str
        others: list[Self]

    codec = Codec()
    codec.register(Node)
    leaves: list[Any] = [Node("b", [])]  # Any: mypy does not bind Self in the __init__ that attrs generates
    node = Node("a", leaves)
    assert back(node, codec) == node


def test_a_bool_an_int_and_a_float_that_are_equal_stay_what_they_are() -> None:
    assert [type(value) for value in back([True, 1, 1.0])] == [bool, int, float]


@pytest.mark.parametrize(
    "value",
    [2**63, 2**64, -(2**63) - 1, 10**5000, -(10**5000)],
    ids=lambda value: f"{value:.0e}" if abs(value) < 1e300 else "huge",
)
def test_integers_of_any_size_are_exact(value: int) -> None:
    assert back(value) == value


@pytest.mark.parametrize("value", [math.inf, -math.inf, -0.0, 5e-324, 1e16, 0.1])
def test_floats_are_exact(value: float) -> None:
    assert same(back(an_order(total=value)).total, value)


def test_nan_stays_nan_and_never_becomes_none() -> None:
    assert math.isnan(back(an_order(total=math.nan)).total)


def test_an_int_in_a_float_field_stays_an_int() -> None:
    assert type(back(an_order(total=3)).total) is int


def test_an_int_enum_in_an_int_field_stays_a_member() -> None:
    assert back(Line("a", Level.HIGH)).count is Level.HIGH


def test_a_str_enum_in_a_str_field_stays_a_member() -> None:
    assert back(Line(Word.YES)).sku is Word.YES


def test_a_str_enum_key_of_a_dict_with_str_keys_stays_a_member() -> None:
    notes = back(an_order(notes={Word.YES: "1", "other": "2"})).notes
    assert {type(key) for key in notes} == {Word, str}


def test_an_alias_of_an_enum_member_comes_back_as_that_member() -> None:
    assert back(Colour.CRIMSON) is Colour.RED


@pytest.mark.parametrize("digits", ["1.0", "1.00", "-0", "NaN", "sNaN", "Infinity", "1E+999"])
def test_decimals_keep_every_digit(digits: str) -> None:
    assert back(Decimal(digits)).as_tuple() == Decimal(digits).as_tuple()


@pytest.mark.parametrize(
    "moment",
    [
        datetime.fromisoformat("2024-10-27T02:30:00").replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime.fromisoformat("2024-10-27T02:30:00").replace(fold=1),
        datetime.fromisoformat("2024-10-27T02:30:00+01:00:30.000007"),
        datetime.fromisoformat("2024-10-27T02:30:00").replace(tzinfo=timezone(timedelta(hours=1), "CET")),
        datetime.fromisoformat("9999-12-31T23:59:59.999999"),
        time(tzinfo=timezone(timedelta(microseconds=1))),
        time.fromisoformat("02:30:00").replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
    ],
    ids=str,
)
def test_moments_keep_zone_and_fold(moment: Any) -> None:
    assert same(back(moment), moment)


@pytest.mark.parametrize("span", [timedelta.max, timedelta.min, timedelta(microseconds=-1)])
def test_durations_are_exact(span: timedelta) -> None:
    assert back(span) == span


def test_a_file_name_that_is_not_utf8_comes_back() -> None:
    path = Path("/tmp/caf\udce9")
    assert back(path) == path


def test_a_datetime_in_a_date_field_stays_a_datetime() -> None:
    due = datetime.fromisoformat("2024-03-01T10:00:00")
    assert same(back(an_order(due=due)).due, due)


def test_a_key_that_looks_like_a_tag_is_only_a_key() -> None:
    value = {"$": "tests.codec.values:Line", "sku": "a"}
    assert back(value) == value
    assert back(an_order(notes={"$": "x", "=": "y"})).notes == {"$": "x", "=": "y"}


def test_validators_and_converters_that_accept_their_own_results_do_no_harm() -> None:
    @define
    class Tidy:
        tags: tuple[str, ...] = field(converter=sorted_tuple)
        size: int = field(default=1, validator=lambda _self, _field, value: None)

    codec = Codec()
    codec.register(Tidy)
    assert back(Tidy(["b", "a"]), codec) == Tidy(["b", "a"])


def test_a_class_with_an_init_of_its_own_comes_back() -> None:
    @define
    class Doubled:
        n: int

        def __init__(self, half: int) -> None:
            self.__attrs_init__(2 * half)  # type: ignore[attr-defined]

    codec = Codec()
    codec.register(Doubled)
    assert back(Doubled(3), codec).n == 6


def test_cached_properties_are_computed_again() -> None:
    @frozen(slots=False)
    class Loose:
        n: int

        @cached_property
        def twice(self) -> int:
            return 2 * self.n

    codec = Codec()
    codec.register(Loose)
    value = Loose(2)
    assert value.twice == 4
    assert back(value, codec) == value


def test_values_without_a_class_of_ours_may_stand_alone() -> None:
    assert back([None, "x", (1,)]) == [None, "x", (1,)]


def test_an_order_is_not_changed_by_being_encoded() -> None:
    order = an_order()
    CODEC.encode(order)
    assert same(order, an_order())


def test_a_generic_class_given_an_argument_needs_no_tags_inside() -> None:
    @frozen
    class Shelf:
        page: Page[Line]

    codec = Codec()
    codec.register(Shelf, GiftLine)
    shelf = Shelf(Page([Line("a"), GiftLine("b")], Line("c")))
    assert codec.encode(shelf).count(b"Line") == 1
    assert same(back(shelf, codec), shelf)


def test_a_generic_base_is_seen_with_the_argument_its_subclass_gives() -> None:
    @frozen
    class Circles(Page[Circle]):
        pass

    codec = Codec()
    codec.register(Circles)
    assert b'Circle"' not in codec.encode(Circles([Circle(1.0)])).replace(b"Circles", b"")
    assert same(back(Circles([Circle(1.0)]), codec), Circles([Circle(1.0)]))


def test_types_are_known_by_what_registered_classes_have_fields_of() -> None:
    codec = Codec()
    codec.register(Square, Order)
    assert codec.decode(codec.encode(Line("a"))) == Line("a")
    assert codec.decode(codec.encode(Colour.RED)) is Colour.RED
