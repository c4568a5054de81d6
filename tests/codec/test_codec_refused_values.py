"""A value that would not come back is refused while it is encoded, by the path of its field."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from attrs import define, field, frozen

from greenroom.codec import Codec
from greenroom.codec.depth import DEEPEST
from greenroom.errors import NotEncodable
from tests.codec.values import Circle, Colour, GiftLine, Line, Page, Pair, Shape, Tree, an_order, new_codec

CODEC = new_codec()


def refusal(value: Any, codec: Codec = CODEC) -> str:
    with pytest.raises(NotEncodable) as caught:
        codec.encode(value)
    return str(caught.value)


@frozen
class Unknown:
    n: int = 1


class Named(str):
    __slots__ = ()


class Sevens(tzinfo):
    def dst(self, moment: datetime | None) -> None:
        return None

    def tzname(self, moment: datetime | None) -> str:
        return "sevens"

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=7)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lines": [Line("a"), Line("b", price="1.0")]}, "Order.lines[1].price: expected Decimal, found str"),  # type: ignore[arg-type]
        ({"lines": (Line("a"),)}, "Order.lines: expected list[Line], found tuple"),
        ({"lines": [Circle(1.0)]}, "Order.lines[0]: expected Line, found Circle"),
        ({"total": "1"}, "Order.total: expected float, found str"),
        ({"total": None}, "Order.total: expected float, found None"),
        ({"notes": {"a": 1}}, "Order.notes[value 0]: expected str, found int"),
        ({"notes": {"a": "b", 1: "c"}}, "Order.notes[key 1]: expected str, found int"),
        ({"pair": (1,)}, "Order.pair: expected tuple[int, str], found 1 element(s)"),
        ({"pair": (1, 2)}, "Order.pair[1]: expected str, found int"),
        ({"labels": frozenset({1})}, "Order.labels[an element]: expected str, found int"),
        ({"labels": {"a"}}, "Order.labels: expected frozenset[str], found set"),
        ({"mode": "medium"}, "Order.mode: expected Literal['fast', 'slow', 3], found another str"),
        ({"mode": [1]}, "Order.mode: expected Literal['fast', 'slow', 3], found another list"),
        ({"choice": 1.5}, "Order.choice: expected int | str, found float"),
        ({"shape": Line("a")}, "Order.shape: expected Shape, found Line"),
        ({"colour": "RED"}, "Order.colour: expected Colour, found str"),
        ({"by_colour": {Colour.RED: (1, "2")}}, "Order.by_colour[value 0][1]: expected int, found str"),
        ({"extra": {"k": [object()]}}, "Order.extra[value 0][0]: a value of type object cannot be encoded"),
        ({"extra": Unknown()}, "is not registered: give it to Codec.register, here and where it is decoded"),
        ({"extra": threading.Lock()}, "Order.extra: a value of type _thread:lock cannot be encoded"),
        ({"extra": len}, "Order.extra: a value of type builtin_function_or_method cannot be encoded"),
        (
            {"extra": Named("x")},
            "Order.extra: a value of type tests.codec.test_codec_refused_values:Named cannot be encoded",
        ),
        ({"secret": b"x"}, "Order._secret: expected str, found bytes"),
        ({"extra": "\ud800"}, "Order.extra: holds a lone surrogate"),
        ({"notes": {"\udcff": "x"}}, "Order.notes[key 0]: holds a lone surrogate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_field_and_the_reason_are_named(changes: dict[str, Any], words: str) -> None:
    assert words in refusal(an_order(**changes))


def test_the_complaint_of_the_only_fitting_member_of_a_union_is_passed_on() -> None:
    @frozen
    class Box:
        it: int | list[int]

    codec = Codec()
    codec.register(Box)
    assert "Box.it[1]: expected int, found str" in refusal(Box([1, "x"]), codec)  # type: ignore[list-item]


def test_a_union_of_containers_names_what_it_would_take() -> None:
    @frozen
    class Box:
        it: list[str] | list[int]

    codec = Codec()
    codec.register(Box)
    assert "Box.it: expected list[str] | list[int], found list" in refusal(Box([1, "x"]), codec)  # type: ignore[arg-type]


def test_content_is_never_in_the_message() -> None:
    message = refusal(an_order(lines=[Line("a", price="hunter2")], notes={"password": 1}))  # type: ignore[arg-type]
    assert "hunter2" not in message
    assert "password" not in message


def test_a_time_zone_that_nothing_could_make_again_is_refused() -> None:
    moment = datetime.fromisoformat("2024-01-01T00:00:00")
    message = refusal(an_order(placed=moment.replace(tzinfo=Sevens())))
    assert "Order.placed: its tzinfo is a Sevens: use datetime.timezone or zoneinfo.ZoneInfo" in message


def test_a_zone_read_from_a_file_without_a_key_is_refused(tmp_path: Any) -> None:
    # The smallest file of the format: version 1, one local time type, UTC.
    header = b"TZif" + b"\x00" * 16 + b"".join(count.to_bytes(4, "big") for count in (0, 0, 0, 0, 1, 4))
    (tmp_path / "zone").write_bytes(header + b"\x00" * 6 + b"UTC\x00")
    with (tmp_path / "zone").open("rb") as file:
        zone = ZoneInfo.from_file(file)
    moment = datetime.fromisoformat("2024-01-01T00:00:00").replace(tzinfo=zone)
    assert "has no key by which to find it again" in refusal(moment)


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert "is nested too deeply, or holds itself" in refusal(endless)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: [inner],
        lambda inner: (inner,),
        lambda inner: {"k": inner},
        lambda inner: Pair((inner,)),
        lambda inner: Tree("t", [inner] if isinstance(inner, Tree) else []),
        lambda inner: Page([inner]),
    ],
    ids=["list", "tuple", "dict", "pair", "tree", "page"],
)
def test_what_is_not_refused_for_its_depth_can_be_decoded_high_up_on_the_stack(wrap: Callable[[Any], Any]) -> None:
    def decode_above(frames: int, data: bytes) -> Any:
        return decode_above(frames - 1, data) if frames else CODEC.decode(data)

    value, accepted = wrap(None), b""
    with pytest.raises(NotEncodable, match="is nested more than 200 levels deep"):
        for _ in range(DEEPEST + 1):
            accepted = CODEC.encode(value)
            value = wrap(value)
    assert CODEC.encode(decode_above(200, accepted)) == accepted


def test_brackets_in_text_do_not_count_as_depth() -> None:
    text = ['[{"\\'] * DEEPEST
    assert CODEC.decode(CODEC.encode(text)) == text


def test_many_values_beside_one_another_are_not_deep() -> None:
    lines = [Line("a")] * (5 * DEEPEST)
    assert CODEC.decode(CODEC.encode(lines)) == lines


def test_an_attribute_beside_the_fields_is_refused_by_name() -> None:
    @define(slots=False)
    class Loose:
        n: int

    codec = Codec()
    codec.register(Loose)
    loose = Loose(1)
    loose.note = "x"  # type: ignore[attr-defined]
    assert "Loose: has an attribute 'note' that is not an attrs field and would be lost" in refusal(loose, codec)


def test_a_field_without_a_value_is_refused_by_name() -> None:
    line = Line("a")
    object.__delattr__(line, "count")
    assert "Line.count: has no value" in refusal(line)


def test_a_converter_that_changes_its_own_result_is_found_out() -> None:
    def longer(text: str) -> str:
        return text + "!"

    @frozen
    class Loud:
        text: str = field(converter=longer)

    codec = Codec()
    codec.register(Loud)
    assert "Loud.text: would be changed when it is decoded" in refusal(Loud("a"), codec)


def test_a_post_init_that_counts_up_is_found_out() -> None:
    @define
    class Counts:
        n: int

        def __attrs_post_init__(self) -> None:
            self.n += 1

    codec = Codec()
    codec.register(Counts)
    assert "Counts.n: would be changed when it is decoded" in refusal(Counts(1), codec)


def test_a_field_that_its_own_validator_would_refuse_is_found_out() -> None:
    def positive(_instance: Any, _attribute: Any, value: int) -> None:
        if value <= 0:
            raise ValueError("too small")

    @define(on_setattr=[])
    class Positive:
        n: int = field(validator=positive)

    codec = Codec()
    codec.register(Positive)
    value = Positive(1)
    with contextlib.suppress(AttributeError):
        value.n = -1
    message = refusal(value, codec)
    assert "Positive would refuse these very fields when it is decoded, by ValueError" in message


def test_a_subclass_nobody_registered_is_refused_even_where_its_base_is_known() -> None:
    @frozen
    class Local(Shape):
        def area(self) -> float:
            return 0.0

    message = refusal(an_order(shape=Local()))
    assert "Order.shape: its class" in message
    assert "Local is not registered" in message


def test_the_root_of_the_path_is_the_type_that_was_given() -> None:
    assert refusal([Line("a"), Line("b", count=None)]).startswith(  # type: ignore[arg-type]
        "cannot encode list: list[1].count: expected int, found None"
    )


def test_nothing_but_the_faulty_value_is_needed_to_go_on() -> None:
    refusal(Pair(object()))
    assert CODEC.decode(CODEC.encode(Pair(Page([GiftLine("a", 1, Decimal(1))])))) == Pair(
        Page([GiftLine("a", 1, Decimal(1))])
    )


def test_a_refusal_keeps_what_caused_it() -> None:
    with pytest.raises(NotEncodable) as caught:
        CODEC.encode(Pair(object()))
    assert caught.value.subject == "Pair"
    assert caught.value.problems[0].startswith("Pair.left: a value of type object cannot be encoded")
