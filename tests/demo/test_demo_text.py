"""Paths in transport form, and messages that can be shown anywhere."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.demo.text import (
    MESSAGE_LIMIT,
    count_lines,
    decode_path,
    decode_utf8,
    encode_path,
    printable,
    stable_error,
)

file_names = st.binary(min_size=1, max_size=40).map(os.fsdecode)
"""What the file system may give: any bytes, those that are no UTF-8 as lone surrogates."""

any_text = st.text(st.characters(codec=None), max_size=400)


@given(file_names)
def test_every_file_name_comes_back_from_its_transport_form(name: str) -> None:
    assert decode_path(encode_path(name)) == name


@given(file_names)
def test_a_transport_form_can_be_shown_and_sent_as_json(name: str) -> None:
    text = encode_path(name)
    assert text.isprintable()
    assert json.loads(json.dumps(text, ensure_ascii=False).encode()) == text


@given(file_names, file_names)
def test_two_file_names_never_share_a_transport_form(one: str, other: str) -> None:
    assert (encode_path(one) == encode_path(other)) == (one == other)


def test_an_ordinary_path_is_its_own_transport_form() -> None:
    assert encode_path("docs/größe 1.md") == "docs/größe 1.md"


def test_what_cannot_be_shown_is_percent_encoded_by_its_bytes() -> None:
    assert encode_path(os.fsdecode(b"a\nb%\xff")) == "a%0Ab%25%FF"


def test_a_surrogate_that_stands_for_no_byte_comes_back_too() -> None:
    assert encode_path("a\ud800b") == "a%uD800b"
    assert decode_path("a%uD800b") == "a\ud800b"


@given(any_text)
def test_a_printable_message_is_one_line_that_utf8_can_hold(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= MESSAGE_LIMIT
    assert shown.encode().decode() == shown


@given(any_text)
def test_making_a_message_printable_twice_changes_nothing_more(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("ValueError: <Thing object at 0x7f3a2c> broke", "ValueError: <Thing object at 0x…> broke"),
        ("OSError: cannot open '/home/me/src/a.py'", "OSError: cannot open './a.py'"),
        (
            "RecursionError: maximum recursion depth exceeded in comparison",
            "RecursionError: maximum recursion depth exceeded",
        ),
        ("process 4711 was killed by SIGKILL", "process was killed by SIGKILL"),
        ("ValueError: first\n  File somewhere, line 3", "ValueError: first"),
    ],
)
def test_an_error_text_keeps_only_what_two_runs_share(said: str, kept: str) -> None:
    assert stable_error(said, "/home/me/src") == kept


def test_an_error_text_is_left_whole_when_the_folder_is_the_root() -> None:
    assert stable_error("OSError: /etc/passwd", "/") == "OSError: /etc/passwd"


def test_wrong_bytes_are_replaced_and_their_line_is_named() -> None:
    assert decode_utf8(b"one\ntwo \xff\nthree") == ("one\ntwo \ufffd\nthree", 2)


def test_a_byte_order_mark_is_not_part_of_the_text() -> None:
    assert decode_utf8(b"\xef\xbb\xbftext") == ("text", None)


def test_the_line_of_a_wrong_byte_is_right_after_a_byte_order_mark() -> None:
    assert decode_utf8(b"\xef\xbb\xbfone\n\xff")[1] == 2


@given(st.lists(st.text(st.characters(exclude_characters="\n\r"), max_size=5), max_size=6))
def test_a_last_line_without_newline_counts_as_a_line(lines: list[str]) -> None:
    complete = "".join(line + "\n" for line in lines)
    assert count_lines(complete) == len(lines)
    assert count_lines(complete + "x") == len(lines) + 1
