"""Classes change while data stays: defaults, retired fields, renamed classes, the same class made again."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs
import pytest
from attrs import Factory, field, frozen

from greenroom.codec import Codec, wire
from greenroom.errors import NotEncodable, Undecodable
from tests.codec.values import Line


def made(name: str, **fields: Any) -> type[Any]:
    """A class as one release of a program might have it."""
    cls: type[Any] = attrs.make_class(name, fields, frozen=True)
    cls.__module__ = "shop"
    return cls


def codec_with(*classes: type[Any]) -> Codec:
    codec = Codec()
    codec.register(*classes)
    return codec


OLD = b'{"$":"shop:Cart","n":1}'


def test_a_missing_field_takes_its_default() -> None:
    cart = made(
        "Cart", n=field(type=int), size=field(type=str, default="m"), tags=field(type=list[str], default=Factory(list))
    )
    assert codec_with(cart).decode(OLD) == cart(1, "m", [])


def test_a_default_that_depends_on_the_other_fields_sees_the_decoded_ones() -> None:
    double = Factory(lambda self: self.n * 2, takes_self=True)
    cart = made("Cart", n=field(type=int), twice=field(type=int, default=double))
    assert codec_with(cart).decode(OLD) == cart(1, 2)


def test_a_missing_field_without_default_is_named() -> None:
    cart = made("Cart", n=field(type=int), size=field(type=str))
    with pytest.raises(Undecodable) as caught:
        codec_with(cart).decode(OLD)
    assert str(caught.value) == "cannot decode Cart.size: is missing and has no default"
    assert (caught.value.type_name, caught.value.field) == ("Cart", "Cart.size")


def test_a_field_that_the_class_does_not_have_is_refused_and_never_skipped() -> None:
    with pytest.raises(Undecodable, match=r"Cart has no field 'colour': was this written by a newer version"):
        codec_with(made("Cart", n=field(type=int))).decode(b'{"$":"shop:Cart","n":1,"colour":"red"}')


def test_a_misspelt_field_with_a_default_is_not_taken_for_a_missing_one() -> None:
    with pytest.raises(Undecodable, match=r"has no field 'm'"):
        codec_with(made("Cart", n=field(type=int, default=0))).decode(b'{"$":"shop:Cart","m":1}')


def test_a_retired_field_is_ignored() -> None:
    cart = wire(retired=["colour"])(made("Cart", n=field(type=int)))
    assert codec_with(cart).decode(b'{"$":"shop:Cart","n":1,"colour":"red"}') == cart(1)


def test_a_decoded_old_value_is_encoded_as_the_class_is_today() -> None:
    cart = made("Cart", n=field(type=int), size=field(type=str, default="m"))
    codec = codec_with(cart)
    assert codec.encode(codec.decode(OLD)) == codec.encode(cart(1))


def test_a_renamed_class_is_found_by_its_alias_and_written_by_its_new_name() -> None:
    basket = wire(aliases=["shop:Cart"])(made("Basket", n=field(type=int)))
    codec = codec_with(basket)
    assert codec.decode(OLD) == basket(1)
    assert codec.encode(basket(1)) == b'{"$":"shop:Basket","n":1}'


def test_a_class_with_a_tag_of_its_own_is_written_by_it_and_still_found_by_its_name() -> None:
    cart = wire("cart")(made("Cart", n=field(type=int)))
    codec = codec_with(cart)
    assert codec.encode(cart(1)) == b'{"$":"cart","n":1}'
    assert codec.decode(b'{"$":"cart","n":1}') == codec.decode(OLD) == cart(1)
    assert codec.tag_of(cart) == "cart"


def test_an_alias_outranks_the_name_that_a_new_class_happens_to_have() -> None:
    old = wire(aliases=["shop:Cart"])(made("OldCart", n=field(type=int)))
    new = wire("cart2")(made("Cart", n=field(type=int)))
    for classes in ((old, new), (new, old)):
        assert codec_with(*classes).decode(OLD) == old(1)


def test_a_tag_can_be_declared_below_the_attrs_decorator_too() -> None:
    @frozen
    @wire("below")
    class Below:
        n: int

    assert codec_with(Below).encode(Below(1)) == b'{"$":"below","n":1}'


def test_a_tag_is_not_inherited() -> None:
    @wire("base")
    @frozen
    class Base:
        n: int

    @frozen
    class Derived(Base):
        pass

    codec = codec_with(Base, Derived)
    assert codec.decode(codec.encode(Derived(1))) == Derived(1)
    assert codec.tag_of(Derived) != "base"


def test_an_enum_may_have_a_tag_of_its_own() -> None:
    @wire("state", aliases=["old:State"])
    class State(Enum):
        ON = 1

    codec = codec_with(State)
    assert codec.encode(State.ON) == b'{"$":"state","=":"ON"}'
    assert codec.decode(b'{"$":"old:State","=":"ON"}') is State.ON


def test_an_alias_is_good_inside_a_field_of_the_class_too() -> None:
    basket = wire(aliases=["shop:Cart"])(made("Basket", n=field(type=int)))
    holder = made("Holder", it=field(type=basket))
    assert codec_with(holder).decode(b'{"$":"shop:Holder","it":{"$":"shop:Cart","n":1}}') == holder(basket(1))


def test_two_classes_cannot_have_one_tag() -> None:
    one, two = wire("cart")(made("One")), wire("cart")(made("Two"))
    with pytest.raises(NotEncodable, match=r"Two: the tag 'cart' belongs to shop:One: give one of the two another"):
        codec_with(one, two)


@pytest.mark.parametrize("tag", ["", "!set", "!mine"])
def test_tags_of_the_codec_itself_are_not_given_away(tag: str) -> None:
    cls = made("Cart")
    codec = Codec()
    with pytest.raises(NotEncodable, match=r"cannot be given"):
        codec.register(wire(aliases=[tag])(cls))


def test_p24_a_class_made_again_takes_the_place_of_the_one_of_the_same_module_and_qualname() -> None:
    first, second = made("Cart", n=field(type=int)), made("Cart", n=field(type=int))
    codec = codec_with(first)
    codec.register(second)
    assert type(codec.decode(OLD)) is second
    with pytest.raises(NotEncodable, match=r"not registered"):
        codec.encode(first(1))


def test_p24_a_class_made_again_with_another_tag_leaves_the_old_tag_to_nobody() -> None:
    first, second = wire("a")(made("Cart", n=field(type=int))), wire("b")(made("Cart", n=field(type=int)))
    codec = codec_with(first)
    codec.register(second)
    with pytest.raises(Undecodable, match=r"the type tag 'a' is unknown"):
        codec.decode(b'{"$":"a","n":1}')


def test_two_codecs_know_nothing_of_each_other() -> None:
    codec_with(Line)
    with pytest.raises(NotEncodable, match=r"tests.codec.values:Line is not registered"):
        Codec().encode(Line("a"))
