"""Equal values have equal bytes, and the bytes say no more than is needed."""

from __future__ import annotations

import random
from typing import Any

import attrs
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from greenroom.codec import Codec
from tests.codec.values import (
    Circle,
    Colour,
    GiftLine,
    Level,
    Line,
    Pair,
    Square,
    an_order,
    any_values,
    hashable_values,
    new_codec,
)

CODEC = new_codec()


@given(st.dictionaries(hashable_values, any_values, max_size=5), st.randoms(use_true_random=False))
def test_the_order_in_which_a_dict_was_filled_does_not_show(value: dict[Any, Any], order: random.Random) -> None:
    items = list(value.items())
    order.shuffle(items)
    assert CODEC.encode(dict(items)) == CODEC.encode(value)


@given(st.lists(st.integers() | st.text(st.characters(codec="utf-8"), max_size=3), max_size=6, unique=True))
def test_the_order_in_which_a_set_was_filled_does_not_show(items: list[Any]) -> None:
    backwards: set[Any] = set()
    for item in reversed(items):
        backwards.add(item)
    assert CODEC.encode(backwards) == CODEC.encode(set(items))


@given(any_values)
def test_encoding_what_was_decoded_gives_the_same_bytes(value: Any) -> None:
    data = CODEC.encode(value)
    assert CODEC.encode(CODEC.decode(data)) == data


def test_encoding_a_decoded_order_gives_the_same_bytes() -> None:
    data = CODEC.encode(an_order())
    assert CODEC.encode(CODEC.decode(data)) == data


def test_the_order_in_which_classes_were_registered_does_not_show() -> None:
    other = Codec()
    for cls in (Pair, GiftLine, Circle):
        other.register(cls)
    assert other.encode(Pair(GiftLine("a"), Circle(1.0))) == CODEC.encode(Pair(GiftLine("a"), Circle(1.0)))


def test_fields_stand_in_the_order_of_their_names_whatever_the_order_of_the_class() -> None:
    assert CODEC.encode(Line("a", 2)) == b'{"$":"tests.codec.values:Line","count":2,"price":"0.00","sku":"a"}'


def test_a_field_whose_type_says_all_has_no_tag() -> None:
    @frozen
    class Box:
        line: Line | None

    codec = Codec()
    codec.register(Box)
    assert codec.encode(Box(Line("a"))).count(b'"$"') == 1


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (None, b"null"),
        (True, b"true"),
        ([1, 1.0, "é"], '[1,1.0,"é"]'.encode()),
        ({"b": 1, "a": 2}, b'{"$":"!dict","=":{"a":2,"b":1}}'),
        ({2: "b", 1: "a"}, b'{"$":"!dict","=":[[1,"a"],[2,"b"]]}'),
        ((1,), b'{"$":"!tuple","=":[1]}'),
        ({2, 1}, b'{"$":"!set","=":[1,2]}'),
        (b"\x00", b'{"$":"!bytes","=":"AA=="}'),
        (2**64, b'{"$":"!int","=":"0x10000000000000000"}'),
        (Colour.RED, b'{"$":"tests.codec.values:Colour","=":"RED"}'),
        (Level.LOW, b'{"$":"tests.codec.values:Level","=":"LOW"}'),
    ],
    ids=str,
)
def test_the_form_of_data_is_a_promise(value: Any, data: bytes) -> None:
    assert CODEC.encode(value) == data


def test_every_attrs_value_in_a_place_that_does_not_name_its_class_has_its_tag() -> None:
    data = CODEC.encode(an_order(extra=[Line("a")], either=Square(1.0), lines=[GiftLine("b")]))
    for name in (b"Order", b"Line", b"Square", b"GiftLine", b"Circle"):
        assert b'"$":"tests.codec.values:' + name + b'"' in data


def test_changing_any_field_changes_the_bytes() -> None:
    order = an_order()
    changes: dict[str, Any] = {"total": 0.2, "notes": {}, "pair": (2, "x"), "shape": Circle(3.0), "secret": "s"}
    assert len({CODEC.encode(attrs.evolve(order, **{name: value})) for name, value in changes.items()}) == len(changes)
