"""Classes of another layer, encoded by two functions of its own."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import frozen

from greenroom.codec import Codec
from greenroom.errors import NotEncodable, Undecodable
from tests.codec.values import Pair


class Address:
    """Like a Ref: no attrs class, a path and a number."""

    def __init__(self, path: str, incarnation: int) -> None:
        self.path, self.incarnation = path, incarnation

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


class Refusal(Exception):
    """An exception that a receiver wants as itself."""


def new_codec(from_plain: Any = lambda plain: Address(*plain)) -> Codec:
    codec = Codec()
    codec.register_external(Address, "ref", lambda address: (address.path, address.incarnation), from_plain)
    codec.register(Pair)
    return codec


def test_an_external_class_travels_under_its_tag() -> None:
    codec = new_codec()
    data = codec.encode(Pair(Address("a/b", 3)))
    assert b'{"$":"ref","=":{"$":"!tuple","=":["a/b",3]}}' in data
    assert codec.decode(data) == Pair(Address("a/b", 3))


def test_fields_may_be_typed_with_an_external_class() -> None:
    codec = new_codec()

    @frozen
    class Holder:
        to: Address
        maybe: Address | None

    codec.register(Holder)
    value = Holder(Address("a", 1), None)
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(NotEncodable, match=r"Holder.to: expected Address, found str"):
        codec.encode(Holder("a", None))  # type: ignore[arg-type]


def test_a_field_typed_with_it_before_it_is_registered_is_refused_with_the_way_out() -> None:
    @frozen
    class Holder:
        to: Address

    with pytest.raises(NotEncodable, match=r"Holder.to: Address cannot be encoded.* see Codec.register_external"):
        Codec().register(Holder)


def test_an_exception_class_may_be_external_and_then_comes_back_as_itself() -> None:
    codec = Codec()
    codec.register_external(Refusal, "refusal", lambda error: list(error.args), lambda plain: Refusal(*plain))
    back = codec.decode(codec.encode(Refusal("no", 1)))
    assert type(back) is Refusal
    assert back.args == ("no", 1)


def test_what_to_plain_raises_is_a_refusal_that_names_the_field() -> None:
    codec = Codec()
    codec.register_external(Address, "ref", lambda address: 1 / 0, lambda plain: Address("", 0))
    codec.register(Pair)
    with pytest.raises(
        NotEncodable, match=r"Pair.left: the to_plain function of Address raised ZeroDivisionError"
    ) as caught:
        codec.encode(Pair(Address("", 0)))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_what_to_plain_gives_must_be_encodable_itself() -> None:
    codec = Codec()
    codec.register_external(Address, "ref", lambda address: object(), lambda plain: Address("", 0))
    with pytest.raises(NotEncodable, match=r"Address: a value of type object cannot be encoded"):
        codec.encode(Address("", 0))


def test_what_from_plain_raises_makes_the_data_undecodable_and_names_the_field() -> None:
    codec = new_codec()
    with pytest.raises(Undecodable, match=r"Pair.left: the from_plain function of Address raised TypeError"):
        codec.decode(b'{"$":"tests.codec.values:Pair","left":{"$":"ref","=":[1,2,3]}}')


def test_what_from_plain_gives_must_be_of_the_class() -> None:
    with pytest.raises(Undecodable, match=r"expected Address from its from_plain function, found int"):
        new_codec(from_plain=lambda plain: 1).decode(b'{"$":"ref","=":1}')


def test_a_subclass_of_an_external_class_is_not_taken_for_it() -> None:
    class Special(Address):
        pass

    with pytest.raises(NotEncodable, match=r"Special cannot be encoded"):
        new_codec().encode(Special("a", 1))


def test_a_class_of_the_codec_itself_is_not_overruled() -> None:
    with pytest.raises(NotEncodable, match=r"dict is encoded by the codec itself"):
        Codec().register_external(dict, "mine", list, dict)


def test_a_tag_in_use_is_refused() -> None:
    codec = new_codec()
    with pytest.raises(NotEncodable, match=r"the tag 'ref' belongs to"):
        codec.register_external(Refusal, "ref", repr, Refusal)


def test_registering_again_replaces_the_functions() -> None:
    codec = new_codec()
    codec.register_external(Address, "ref", lambda address: address.path, lambda path: Address(path, 9))
    assert codec.decode(codec.encode(Address("a", 1))) == Address("a", 9)
