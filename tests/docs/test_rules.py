"""Rules and their proofs agree: each rule that a page states is proved by a test of its number, and each number has its rule."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent

STATED: Final = (
    ("design.md", re.compile(r"^\* \*\*([PRI])(\d+)\*\*(?: to \*\*\1(\d+)\*\*)?", re.MULTILINE)),
    ("contracts.md", re.compile(r"^\| ([CK])(\d+)() \|", re.MULTILINE)),
    ("replay.md", re.compile(r"^(?:\*|\d\.) \*\*(T)(\d+)()\*\*", re.MULTILINE)),
)
"""Where each kind of rule is stated, and how: one, or a first and a last one."""

CITED: Final = re.compile(r"test((?:_[cikprt]\d+)+)_")
"""A test's name, or its file's, begins with the numbers that it proves."""


def rules_on(page: str, form: re.Pattern[str]) -> Iterator[str]:
    for letter, first, last in form.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        yield from (f"{letter}{number}" for number in range(int(first), int(last or first) + 1))


@cache
def stated() -> tuple[str, ...]:
    return tuple(rule for page, form in STATED for rule in rules_on(page, form))


@cache
def cited() -> dict[str, set[str]]:
    """By rule, the tests that cite it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in ROOT.glob("tests/**/test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                for name in (path.name, node.name):
                    match = CITED.match(name)
                    for letter, number in re.findall(r"_([a-z])(\d+)", match[1] if match is not None else ""):
                        found[f"{letter.upper()}{int(number)}"].add(f"{path.name}::{node.name}")
    return found


def test_a_rule_is_stated_once() -> None:
    assert sorted(stated()) == sorted(set(stated()))
    assert len(stated()) > 100


@pytest.mark.parametrize("rule", [rule for rule in stated() if not rule.startswith("T")])
def test_a_rule_that_is_stated_is_proved_by_a_test_of_its_number(rule: str) -> None:
    assert cited()[rule]


def test_a_number_that_a_test_cites_is_that_of_a_rule() -> None:
    unknown = {rule: sorted(tests) for rule, tests in cited().items() if rule not in stated()}
    assert unknown == {}
