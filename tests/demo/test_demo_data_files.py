"""Validity of JSON and TOML files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.demo.data_files import DIGITS_LIMIT, review_json, review_toml
from greenroom.demo.values import Code, Finding


def of_json(data: bytes) -> list[tuple[Code, int | None]]:
    return [(finding.code, finding.line) for finding in review_json("a.json", data).findings]


def of_toml(data: bytes) -> list[tuple[Code, int | None]]:
    return [(finding.code, finding.line) for finding in review_toml("a.toml", data).findings]


def test_valid_json_has_nothing_to_say() -> None:
    seen = review_json("a.json", b'{"a": [1, 2.5, -3e7, true, null, "x"], "b": {"a": {}}}\n')
    assert (seen.lines, seen.findings) == (1, ())


def test_invalid_json_is_a_finding_with_line_and_column() -> None:
    assert review_json("a.json", b'{\n  "a": ,\n}').findings == (
        Finding(path="a.json", line=2, code=Code.JSON_INVALID, message="Expecting value (column 8)"),
    )


@pytest.mark.parametrize("data", [b"", b" ", b"{} {}", b"'x'", b"[1,]", b'{"a" 1}', b'"\n"', b"// no\n{}", b"01"])
def test_what_only_looks_like_json_is_invalid(data: bytes) -> None:
    assert [code for code, _ in of_json(data)] == [Code.JSON_INVALID]


def test_a_key_that_stands_twice_is_a_finding_at_its_second_line() -> None:
    (finding,) = review_json("a.json", b'{"x": {"a": 1,\n"b": 2,\n"a": 3}, "b": 4}').findings
    assert (finding.code, finding.line) == (Code.JSON_DUPLICATE_KEY, 3)
    assert '"a" stands twice' in finding.message


def test_a_key_that_is_spelled_in_two_ways_is_still_one_key() -> None:
    assert of_json(rb'{"a": 1, "\u0061": 2}') == [(Code.JSON_DUPLICATE_KEY, 1)]


def test_the_same_key_in_two_objects_or_as_a_value_is_fine() -> None:
    assert of_json(b'[{"a": "a"}, {"a": ["a", "a"]}, "a", "a"]') == []


def test_a_value_equal_to_its_key_is_no_second_key() -> None:
    assert of_json(b'{"a": "a", "b": NaN}') == [(Code.JSON_CONSTANT, 1)]


def test_what_looks_like_structure_inside_a_string_is_none() -> None:
    assert of_json(rb'{"a": "{\"b\": 1, \"b\": [", "c": NaN, "c": "]}"}') == [
        (Code.JSON_CONSTANT, 1),
        (Code.JSON_DUPLICATE_KEY, 1),
    ]


@pytest.mark.parametrize("constant", [b"NaN", b"Infinity", b"-Infinity"])
def test_a_constant_that_only_python_knows_is_a_finding(constant: bytes) -> None:
    assert of_json(b"[1,\n " + constant + b"]") == [(Code.JSON_CONSTANT, 2)]


def test_an_integer_longer_than_python_converts_is_a_finding_not_a_crash() -> None:
    assert of_json(b"[1,\n-" + b"9" * (DIGITS_LIMIT + 1) + b"]") == [(Code.JSON_LONG_NUMBER, 2)]


def test_an_integer_at_the_limit_and_a_longer_fraction_are_fine() -> None:
    assert of_json(b"[" + b"9" * DIGITS_LIMIT + b", 0." + b"9" * 5000 + b"]") == []


def test_a_byte_order_mark_is_a_finding_and_the_rest_is_reviewed() -> None:
    assert of_json(b'\xef\xbb\xbf{"a": 1,\n"a": 2}') == [(Code.BYTE_ORDER_MARK, 1), (Code.JSON_DUPLICATE_KEY, 2)]


def test_json_that_is_no_utf8_is_a_finding() -> None:
    assert of_json(b'["a",\n"\xe9"]') == [(Code.BAD_ENCODING, 2)]


def test_a_key_that_is_half_a_surrogate_pair_can_still_be_reported() -> None:
    (finding,) = review_json("a.json", rb'{"\ud800": 1, "\ud800": 2}').findings
    assert "\\ud800" in finding.message
    assert finding.message.isprintable()


def test_json_nested_too_deeply_crashes_the_reader() -> None:
    with pytest.raises(RecursionError):
        review_json("a.json", b"[" * 100_000)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_a_json_writer_writes_has_nothing_to_say(value: object) -> None:
    assert of_json(json.dumps(value).encode()) == []
    assert of_json(json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace")) == []


@given(st.lists(st.text('ab\\"{}[],:\n', max_size=3), max_size=6), st.integers(0, 3))
def test_each_repetition_of_a_key_is_reported_once(keys: list[str], depth: int) -> None:
    body = ",\n".join(f"{json.dumps(key)}: {{}}" for key in keys)
    seen = of_json(('{"k": [' * depth + "{" + body + "}" + "]}" * depth).encode())
    repeated = [line for line, key in enumerate(keys, 1) if key in keys[: line - 1]]
    assert seen == [(Code.JSON_DUPLICATE_KEY, line) for line in repeated]


@given(st.binary(max_size=40) | st.text('{}[]:,"\\0-9.eE \nNaInfty', max_size=40).map(str.encode))
def test_no_small_file_crashes_the_review_of_json(data: bytes) -> None:
    assert all(line is None or line >= 1 for _, line in of_json(data))


def test_valid_toml_has_nothing_to_say() -> None:
    seen = review_toml("a.toml", b'# x\r\n[a]\r\nb = "c"\r\nd = 2020-01-01\r\n')
    assert (seen.lines, seen.findings) == (4, ())


def test_an_empty_toml_file_is_valid() -> None:
    assert of_toml(b"") == []


def test_invalid_toml_is_a_finding_with_line_and_column() -> None:
    assert review_toml("a.toml", b"a = 1\nb = ?\n").findings == (
        Finding(path="a.toml", line=2, code=Code.TOML_INVALID, message="Invalid value (column 5)"),
    )


def test_toml_that_ends_too_early_is_a_finding_at_its_last_line() -> None:
    assert review_toml("a.toml", b"a = 1\nb =").findings == (
        Finding(path="a.toml", line=2, code=Code.TOML_INVALID, message="Invalid value (end of file)"),
    )


def test_a_toml_key_that_stands_twice_is_invalid() -> None:
    assert of_toml(b"a = 1\na = 2\n") == [(Code.TOML_INVALID, 2)]


def test_a_toml_integer_too_long_for_python_is_a_finding() -> None:
    assert of_toml(b"a = " + b"9" * 5000) == [(Code.TOML_INVALID, None)]


def test_a_byte_order_mark_is_a_finding_in_toml_too() -> None:
    assert of_toml(b"\xef\xbb\xbfa = 1\n") == [(Code.BYTE_ORDER_MARK, 1)]


def test_toml_that_is_no_utf8_is_a_finding() -> None:
    assert of_toml(b"a = 1\n# \xe9\n") == [(Code.BAD_ENCODING, 2)]


def test_toml_nested_too_deeply_crashes_the_reader() -> None:
    with pytest.raises(RecursionError):
        review_toml("a.toml", b"a = " + b"[" * 5_000)


@given(st.binary(max_size=40) | st.text("[]{}=.,\"'#\n \\ab01-:TZ+", max_size=40).map(str.encode))
def test_no_small_file_crashes_the_review_of_toml(data: bytes) -> None:
    assert all(line is None or line >= 1 for _, line in of_toml(data))
