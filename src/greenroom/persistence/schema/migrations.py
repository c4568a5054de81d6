"""The schema: numbered steps forward, each written once for each database, and what they bring it to.

The database carries (version, oldest code). Code refuses a database whose oldest code is newer than itself, and only that: a
release that expands the schema leaves older workers running, and the one after it may contract (R33).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from typing import Final, Literal

from attrs import frozen

Dialect = Literal["sqlite", "postgres"]

CODE: Final = 4
"""What this code counts as: the latest migration that it knows."""


@frozen
class Migration:
    """One step forward."""

    number: int
    """From 1; the schema's version after it."""
    oldest_code: int
    """Code older than that cannot work with the schema after this step."""


MIGRATIONS: Final = (
    Migration(1, oldest_code=1),
    Migration(2, oldest_code=2),
    Migration(3, oldest_code=2),
    Migration(4, oldest_code=2),
)


def sql_of(migration: Migration, dialect: Dialect) -> str:
    """The text of a step."""
    file = resources.files(__package__) / f"{migration.number:04}_{dialect}.sql"
    return file.read_text(encoding="utf-8")


def statements(text: str) -> Iterator[str]:
    """The statements of a text, one by one, without comments. Bodies of triggers (BEGIN … END) hold together."""
    lines = "\n".join(re.sub(r"--.*", "", line) for line in text.splitlines())
    statement = ""
    for part in lines.split(";"):
        statement += part
        inside = re.search(r"^\s*BEGIN\b", statement, re.MULTILINE)
        if inside is None or re.search(r"\bEND\s*$", statement):
            if statement.strip():
                yield statement.strip()
            statement = ""
        else:
            statement += ";"


@frozen
class SchemaState:
    """What a database says of its schema; both are 0 where there is none."""

    version: int
    oldest_code: int


class Newer(Exception):
    """The database is only for newer code."""


def missing(state: SchemaState) -> tuple[Migration, ...]:
    """The steps that a database still needs, in order. Raises `Newer` when this code must not touch it."""
    if state.oldest_code > CODE:
        raise Newer(
            f"its schema (version {state.version}) needs code {state.oldest_code} or later, and this is code {CODE}: "
            "install a newer greenroom"
        )
    return tuple(migration for migration in MIGRATIONS if migration.number > state.version)
