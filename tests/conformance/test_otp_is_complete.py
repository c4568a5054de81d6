"""docs/otp.md and the tests agree: every behaviour listed there is proved, and every proof is listed there."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parent.parent.parent
ROW = re.compile(
    r"^\| (?P<number>\d+) \| (?P<text>.+) \| (?P<how>.+) \| `(?P<test>test_otp_\d{3}_\w+)` \|$", re.MULTILINE
)
NUMBERED = re.compile(r"test_otp_(\d{3})_\w+")


@attrs.frozen
class Row:
    """A behaviour in docs/otp.md."""

    number: int
    text: str
    how: str
    test: str


@cache
def rows() -> tuple[Row, ...]:
    text = (ROOT / "docs" / "otp.md").read_text(encoding="utf-8")
    return tuple(Row(int(one["number"]), one["text"], one["how"], one["test"]) for one in ROW.finditer(text))


@cache
def numbered_tests() -> dict[int, set[str]]:
    """The test functions of this folder that carry a number."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                numbered = NUMBERED.fullmatch(node.name)
                if numbered is not None:
                    found[int(numbered[1])].add(node.name)
    return found


def test_every_behaviour_of_the_page_has_a_test_and_every_numbered_test_is_on_the_page() -> None:
    assert {row.number for row in rows()} == set(numbered_tests())


def test_the_behaviours_are_listed_once_each_and_in_order() -> None:
    numbers = [row.number for row in rows()]
    assert numbers == sorted(set(numbers))


def test_no_row_of_the_page_is_left_out_for_its_form() -> None:
    text = (ROOT / "docs" / "otp.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\| \d+ \|", text, re.MULTILINE)) == len(rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.number:03}")
def test_the_test_that_a_behaviour_names_exists_under_its_number(row: Row) -> None:
    assert row.test in numbered_tests()[row.number]


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.number:03}")
def test_a_behaviour_is_the_same_or_differs_or_is_not_offered(row: Row) -> None:
    assert row.how in ("same", "differs", "not offered")
