"""Words that mean something else to everybody else are not used for what is here (C25)."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import typer.main

import greenroom
from greenroom.cli.main import app
from greenroom.persistence.schema.migrations import MIGRATIONS, sql_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def names_of_the_api() -> Iterator[str]:
    """Public names, those of their members, and of what is given to either."""
    for name in greenroom.__all__:
        value = getattr(greenroom, name)
        members = [each for each in dir(value) if not each.startswith("_")]
        yield from (name, *members)
        for each in (value, *(inspect.getattr_static(value, member) for member in members)):
            if callable(each) and not (isinstance(each, type) and issubclass(each, BaseException)):
                yield from signature_of(each)


def signature_of(value: object) -> Iterator[str]:
    try:
        yield from inspect.signature(value).parameters  # type: ignore[arg-type]
    except ValueError:  # built in: it has none that could be read
        return


def texts_of_the_commands(command: Any) -> Iterator[str]:
    """What a command and those below it are called, and say of themselves."""
    yield from (command.name or "", command.help or "", command.short_help or "", command.epilog or "")
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts, getattr(parameter, "help", None) or "")
    for below in getattr(command, "commands", {}).values():
        yield from texts_of_the_commands(below)


def test_c25_nothing_is_called_a_checkpoint() -> None:
    said = [*names_of_the_api(), *texts_of_the_commands(typer.main.get_command(app))]
    said += [sql_of(migration, database) for migration in MIGRATIONS for database in ("sqlite", "postgres")]
    assert len(said) > 1000
    assert [text for text in said if "checkpoint" in text.lower()] == []
