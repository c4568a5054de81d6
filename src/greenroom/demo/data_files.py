"""Review JSON and TOML files: are they valid, and what in them would surprise the next reader."""

from __future__ import annotations

import bisect
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Final

import attrs

from greenroom.demo.text import count_lines, decode_utf8
from greenroom.demo.values import Code, Finding, Review

DIGITS_LIMIT: Final = 4300
"""Digits of an integer above which Python refuses it by default; fixed here, so that no setting changes a finding."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_TOML_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_JSON_TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]:,]|-?\d[\d.eE+-]*|-?Infinity|NaN', re.DOTALL)


def review_json(path: str, data: bytes) -> Review:
    """Review one JSON file, by RFC 8259: UTF-8 without a byte order mark, no NaN, no key twice in an object.

    An integer longer than Python converts is a finding, not a crash: numbers are not converted at all.

    Raises:
        RecursionError: for arrays and objects nested deeper than the parser follows. It is not caught here: the reader
            crashes, its supervisor starts it again, and the intake gives the file up after two.
    """
    text, findings = _text(path, data)
    doubts: list[str] = []

    def check_number(digits: str) -> None:
        if len(digits.lstrip("-")) > DIGITS_LIMIT:
            doubts.append(digits)

    def check_object(pairs: list[tuple[str, None]]) -> None:
        if len({key for key, _ in pairs}) != len(pairs):
            doubts.append("{}")

    try:
        json.loads(
            text,
            parse_int=check_number,
            parse_float=_nothing,
            parse_constant=doubts.append,
            object_pairs_hook=check_object,
        )
    except json.JSONDecodeError as error:
        message = f"{error.msg} (column {error.colno})"
        findings += (Finding(path=path, line=error.lineno, code=Code.JSON_INVALID, message=message),)
    else:
        if doubts:
            findings += tuple(_surprises(path, text))
    return Review(lines=count_lines(text), findings=findings)


def review_toml(path: str, data: bytes) -> Review:
    """Review one TOML file, by TOML 1.0 as `tomllib` reads it: UTF-8 without a byte order mark.

    Raises:
        RecursionError: for arrays and tables nested deeper than the parser follows; not caught, as in `review_json`.
    """
    text, findings = _text(path, data)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        place = _TOML_PLACE.search(said)
        line, message = None, said
        if place is not None:
            line = int(place[1]) if place[1] else max(1, count_lines(text))
            message = said[: place.start()] + (f" (column {place[2]})" if place[2] else " (end of file)")
        findings += (Finding(path=path, line=line, code=Code.TOML_INVALID, message=message),)
    except ValueError:  # the one that tomllib leaves to int(): more digits than Python converts
        message = f"an integer of more than {DIGITS_LIMIT} digits"
        findings += (Finding(path=path, line=None, code=Code.TOML_INVALID, message=message),)
    return Review(lines=count_lines(text), findings=findings)


def _text(path: str, data: bytes) -> tuple[str, tuple[Finding, ...]]:
    text, wrong = decode_utf8(data)
    findings: tuple[Finding, ...] = ()
    if data.startswith(_BYTE_ORDER_MARK):
        message = "starts with a byte order mark, which many readers refuse"
        findings += (Finding(path=path, line=1, code=Code.BYTE_ORDER_MARK, message=message),)
    if wrong is not None:
        findings += (Finding(path=path, line=wrong, code=Code.BAD_ENCODING, message="not UTF-8 from here on"),)
    return text, findings


def _nothing(_: str) -> None:
    """Convert a number to nothing: only the form of the file is of interest."""


@attrs.define
class _Open:
    """An object or array that has begun: the keys so far (None for an array), and whether a key comes next."""

    keys: set[str] | None
    key_next: bool


def _surprises(path: str, text: str) -> Iterator[Finding]:
    """Go through the tokens of a text that is known to parse, and name the lines of its surprises."""
    newlines = [match.start() for match in re.finditer("\n", text)]
    containers: list[_Open] = [_Open(None, False)]
    for match in _JSON_TOKEN.finditer(text):
        token, top = match.group(), containers[-1]
        line = bisect.bisect_left(newlines, match.start()) + 1
        if token in "{[":
            containers.append(_Open(set() if token == "{" else None, token == "{"))
        elif token in "}]":
            containers.pop()
        elif token == ",":
            top.key_next = top.keys is not None
        elif token == ":":
            top.key_next = False
        elif token.startswith('"'):
            if top.keys is not None and top.key_next:
                key = str(json.loads(token))
                if key in top.keys:
                    message = f"the key {json.dumps(key, ensure_ascii=False)} stands twice in one object; the last wins"
                    yield Finding(path=path, line=line, code=Code.JSON_DUPLICATE_KEY, message=message)
                top.keys.add(key)
        elif token in ("NaN", "Infinity", "-Infinity"):
            yield Finding(path=path, line=line, code=Code.JSON_CONSTANT, message=f"{token} is no JSON")
        elif token.lstrip("-").isdigit() and len(token.lstrip("-")) > DIGITS_LIMIT:
            message = f"an integer of {len(token.lstrip('-'))} digits; Python converts {DIGITS_LIMIT}"
            yield Finding(path=path, line=line, code=Code.JSON_LONG_NUMBER, message=message)
