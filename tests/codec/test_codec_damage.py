"""Damaged or foreign data: an Undecodable that names the place, never another exception, never a value of another type."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from attrs import field, frozen
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom.codec import Codec
from greenroom.errors import NotEncodable, Undecodable
from tests.codec.values import Circle, Order, Pair, an_order, any_values, new_codec

CODEC = new_codec()
DATA = CODEC.encode(an_order())


def decoded(data: bytes) -> Any:
    """The value, or None if it is Undecodable; any other exception fails the test."""
    try:
        return CODEC.decode(data)
    except Undecodable:
        return None


def conforms(value: Any, kind: type[Any]) -> bool:
    """Of the type, and every field of its own type: encoding checks them all."""
    return type(value) is kind and CODEC.decode(CODEC.encode(value)) is not None


def test_every_truncation_is_undecodable() -> None:
    assert [length for length in range(len(DATA)) if decoded(DATA[:length]) is not None] == []


def test_no_flipped_bit_gives_anything_but_a_whole_order_or_a_refusal() -> None:
    outcomes = set()
    for place in range(len(DATA)):
        for bit in range(8):
            damaged = bytearray(DATA)
            damaged[place] ^= 1 << bit
            value = decoded(bytes(damaged))
            assert value is None or conforms(value, Order)
            outcomes.add(value is None)
    assert outcomes == {True, False}


@given(st.integers(0, len(DATA) - 1), st.integers(0, 40), st.binary(max_size=6))
def test_no_replaced_stretch_gives_anything_but_a_whole_order_or_a_refusal(start: int, length: int, new: bytes) -> None:
    value = decoded(DATA[:start] + new + DATA[start + length :])
    assert value is None or conforms(value, Order)


PLAINS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["$", "=", "sku", "radius", "at", "raw"]), inner, max_size=3),
        st.builds(
            lambda tag, body: {"$": tag, "=": body},
            st.sampled_from(
                ["!int", "!float", "!set", "!dict", "!tuple", "!date", "!datetime", "!time", "!error", "!Path"]
            ),
            inner,
        ),
    ),
    max_leaves=5,
)


@given(st.sampled_from(sorted(msgspec.json.decode(DATA).keys() - {"$"})), PLAINS)
def test_no_field_takes_a_value_of_another_type(name: str, plain: Any) -> None:
    tree = msgspec.json.decode(DATA)
    tree[name] = plain
    value = decoded(msgspec.json.encode(tree))
    assert value is None or conforms(value, Order)


@given(PLAINS)
def test_any_json_is_a_value_or_undecodable(plain: Any) -> None:
    value = decoded(msgspec.json.encode(plain))
    CODEC.encode(value)


@given(st.binary(max_size=40))
@example(b"\xff")
@example(b'"\\ud800"')
@example(b"")
def test_any_bytes_are_a_value_or_undecodable(data: bytes) -> None:
    decoded(data)


@given(any_values, st.data())
def test_a_damaged_value_of_any_shape_is_a_value_or_undecodable(value: Any, choose: st.DataObject) -> None:
    data = bytearray(CODEC.encode(value))
    data[choose.draw(st.integers(0, len(data) - 1))] = choose.draw(st.integers(0, 255))
    decoded(bytes(data))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cannot decode the data: it is not JSON: Input data was truncated"),
        (b"{", "cannot decode the data: it is not JSON"),
        (b"[" * 50_000, "cannot decode the data: it is nested too deeply"),
        (b'{"$":"nobody:X"}', "cannot decode a value tagged 'nobody:X': the type tag 'nobody:X' is unknown: register its class"),
        (b'{"$":1}', "an object needs the text of a type tag under '$' here"),
        (b'{"sku":"a"}', "cannot decode the data: an object needs the text of a type tag"),
        (b'{"$":"!what","=":1}', "the type tag '!what' is unknown"),
        (b'{"$":"!set"}', "cannot decode set: data tagged '!set' must have '=' beside its tag, and nothing else"),
        (b'{"$":"!set","=":[1,1]}', "an element of a set is there twice"),
        (b'{"$":"!set","=":[[1]]}', "an element of a set is not hashable"),
        (b'{"$":"!dict","=":[[1,2],[1,3]]}', "dict[key 1]: this key of a dict is there twice"),
        (b'{"$":"!dict","=":[[[],3]]}', "a key of a dict is not hashable"),
        (b'{"$":"!dict","=":[[1]]}', "expected dict[Any, Any], found list"),
        (b'{"$":"!int","=":"5"}', "a large int must be hexadecimal text"),
        (b'{"$":"!float","=":"1"}', "a float that is no number must be"),
        (b'{"$":"!bytes","=":"?"}', "bytes: the text is not a bytes"),
        (b'{"$":"!Decimal","=":"one"}', "the text is not a Decimal"),
        (b'{"$":"!UUID","=":"one"}', "the text is not a UUID"),
        (b'{"$":"!date","=":"2024-02-30"}', "the text is not a date in ISO 8601"),
        (b'{"$":"!date","=":5}', "expected date as text, found int"),
        (b'{"$":"!time","=":"25:00"}', "the text is not a time in ISO 8601"),
        (b'{"$":"!timedelta","=":[1,2]}', "a timedelta is [days, seconds, microseconds], all int"),
        (b'{"$":"!timedelta","=":[0,86400,0]}', "fewer than 86400 seconds"),
        (b'{"$":"!timedelta","=":[9999999999,0,0]}', "a timedelta this long does not exist"),
        (b'{"$":"!datetime","=":{"at":"2024-01-01","fold":2}}', "a datetime in parts has 'at'"),
        (b'{"$":"!datetime","=":{"at":"2024-01-01","fold":0,"zone":"Mars/Base"}}', "the time zone 'Mars/Base' is not known here"),
        (b'{"$":"!datetime","=":{"at":"2024-01-01","fold":0,"zone":"Europe"}}', "the time zone 'Europe' is not known here"),
        (b'{"$":"!datetime","=":{"at":"2024-01-01","fold":0,"zone":"../etc/passwd"}}', "a zone must be a key such as"),
        (b'{"$":"!datetime","=":{"at":"2024-01-01","fold":0,"offset":[2,0,0]}}', "must be shorter than a day"),
        (b'{"$":"tests.codec.values:Colour","=":"BLUE"}', "Colour: Colour has no such member"),
        (b'{"$":"tests.codec.values:Colour","=":1}', "expected a member name of Colour, found int"),
        (b'{"$":"tests.codec.values:Access","=":64}', "Access has no such flags"),
        (b'{"$":"tests.codec.values:Line","sku":1}', "cannot decode Line.sku: expected str, found int"),
        (b'{"$":"tests.codec.values:Line"}', "cannot decode Line.sku: is missing and has no default"),
        (b'{"$":"tests.codec.values:Line","sku":"a","price":"x"}', "cannot decode Line.price: the text is not a Decimal"),
        (b'{"$":"tests.codec.values:Tree","name":"a","children":[{"name":"b","children":[{}]}]}', "Tree.children[0].children[0].children: is missing"),
        (b'{"$":"tests.codec.values:Tree","name":"a","children":[{"$":"tests.codec.values:Circle","radius":1.0}]}', "Tree.children[0]: expected Tree, found Circle"),
        (b'{"$":"tests.codec.values:Pair","left":{"$":"!dict","=":{"a":[{"$":"x:Y"}]}}}', "Pair.left[value 0][0]: the type tag 'x:Y' is unknown"),
    ],
    ids=lambda part: part[:40].decode() if isinstance(part, bytes) else "",
)  # fmt: skip
def test_what_is_wrong_is_named(data: bytes, message: str) -> None:
    with pytest.raises(Undecodable) as caught:
        CODEC.decode(data)
    assert message in str(caught.value)


def test_the_source_of_the_bytes_is_in_the_message_and_a_field() -> None:
    with pytest.raises(Undecodable) as caught:
        CODEC.decode(b'{"$":"tests.codec.values:Line","sku":1}', source="journal row 17 of task T1")
    error = caught.value
    assert str(error) == "journal row 17 of task T1: cannot decode Line.sku: expected str, found int"
    assert (error.type_name, error.field, error.source) == ("Line", "Line.sku", "journal row 17 of task T1")


def test_what_a_class_itself_refuses_is_undecodable_and_keeps_the_cause() -> None:
    def positive(_instance: Any, _attribute: Any, value: int) -> None:
        if value <= 0:
            raise ValueError("too small: hunter2")

    @frozen
    class Positive:
        n: int = field(validator=positive)

    codec = Codec()
    codec.register(Positive, Pair)
    data = codec.encode(Pair(Positive(1))).replace(b"1", b"0")
    with pytest.raises(Undecodable, match=r"Pair.left: Positive itself refused these fields, by ValueError$") as caught:
        codec.decode(data)
    assert isinstance(caught.value.__cause__, ValueError)


def test_content_is_never_in_the_message() -> None:
    with pytest.raises(Undecodable) as caught:
        CODEC.decode(b'{"$":"tests.codec.values:Line","sku":"a","price":"hunter2"}')
    assert "hunter2" not in str(caught.value)


def test_a_key_that_fails_to_hash_is_undecodable() -> None:
    @frozen(eq=False)
    class Sour:
        n: int

        def __hash__(self) -> int:
            raise RuntimeError("no")

    codec = Codec()
    codec.register(Sour)
    with pytest.raises(Undecodable, match="cannot decode set: decoding it raised RuntimeError"):
        codec.decode(b'{"$":"!set","=":[' + codec.encode(Sour(1)) + b"]}")


def test_data_of_one_class_is_never_another() -> None:
    assert type(CODEC.decode(CODEC.encode(Circle(1.0)))) is Circle
    with pytest.raises(Undecodable, match=r"Line.sku: is missing"):
        CODEC.decode(CODEC.encode(Circle(1.0)).replace(b"Circle", b"Line"))


@pytest.mark.parametrize(
    "error",
    [
        NotEncodable("Order", ("Order.a: x", "Order.b: y")),
        NotEncodable("Order", ("Order.a: x",)),
        Undecodable("Order", "Order.a", "expected int", "row 1"),
        Undecodable("the data", "", "not JSON"),
    ],
)
def test_the_errors_survive_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_several_problems_are_listed_one_a_line() -> None:
    assert str(NotEncodable("Order", ("Order.a: x", "Order.b: y"))) == (
        "cannot encode Order, for 2 reasons:\n  - Order.a: x\n  - Order.b: y"
    )
