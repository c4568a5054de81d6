"""Exceptions as values: how a process child tells why it ended.

An exception is told in text and comes back as `RemoteError`, the one kind of value that is not what it was: making the
original again would need its class and run its code. Nothing here may fail: what cannot be told says so in its text.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

from greenroom.codec.dynamic import Dynamic
from greenroom.codec.plan import BODY, TAG, Fault, Plain, body_of
from greenroom.errors import RemoteError

ERROR_TAG = "!error"

DEEPEST = 32
"""Causes, and groups inside groups, are told this many deep."""

MOST = 256
"""Exceptions are told this many in all: causes and groups may refer to one another in circles.

Where one of the two limits cuts something off, a note says so.
"""

_TEXTS = ("type", "text", "trace")
_LISTS = ("arguments", "notes", "members")
_KEYS = {*_TEXTS, *_LISTS, "cause"}


def teach_exceptions(dynamic: Dynamic) -> None:
    """Exceptions are unpacked by their tag; that a value is one shows at its class, which no table can list."""
    dynamic.unpackers[ERROR_TAG] = lambda plain: _unpack(body_of(plain))


def pack_exception(error: BaseException) -> dict[str, Plain]:
    return {TAG: ERROR_TAG, BODY: _pack(error, DEEPEST, iter(range(MOST - 1)))}


def _pack(error: BaseException, depth: int, left: Iterator[int]) -> dict[str, Plain]:
    cause = error.__cause__ if error.__cause__ is not None or error.__suppress_context__ else error.__context__
    members: tuple[BaseException, ...] = ()
    if isinstance(error, BaseExceptionGroup):
        members = error.exceptions
    attached = getattr(error, "__notes__", None)
    notes = [_clean(str, note) for note in attached] if isinstance(attached, list) else []
    if isinstance(error, RemoteError):  # told once already: pass it on as it was, not as an exception of this process
        type_name, text, trace = _clean(str, error.type_name), _clean(str, error.text), _clean(str, error.trace)
        arguments = [_clean(str, argument) for argument in error.arguments]
        members = error.members
        notes = [note for note in notes if note != f"raised elsewhere:\n{trace}"]
    else:
        type_name, text, trace = _type_name(type(error)), _clean(str, error), _trace(error)
        arguments = [_clean(repr, argument) for argument in error.args]
    below = [*members] if cause is None else [cause, *members]
    told = [_pack(each, depth - 1, left) for each in below if depth > 0 and next(left, None) is not None]
    if len(told) < len(below):
        notes.append(f"{len(below) - len(told)} exception(s) that it came from or holds are left out")
    return {
        "arguments": arguments,
        "cause": told.pop(0) if told and cause is not None else None,
        "members": told,
        "notes": notes,
        "text": text,
        "trace": trace,
        "type": type_name,
    }


def _type_name(cls: type[BaseException]) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _clean(tell: Any, value: object) -> str:
    """Text of anything, fit for UTF-8."""
    try:
        text: str = tell(value)
    except Exception as error:  # noqa: BLE001 - anything may be raised in there, and a report of a crash must not crash
        text = f"<{tell.__name__}() raised {type(error).__qualname__}>"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _trace(error: BaseException) -> str:
    def tell(failed: BaseException) -> str:
        return "".join(traceback.format_exception(type(failed), failed, failed.__traceback__, chain=False))

    return _clean(tell, error)


def _unpack(plain: Plain) -> RemoteError:
    if type(plain) is not dict or plain.keys() != _KEYS:
        raise Fault(f"an exception has exactly the fields {', '.join(sorted(_KEYS))}")
    if any(type(plain[key]) is not str for key in _TEXTS) or any(type(plain[key]) is not list for key in _LISTS):
        raise Fault("the parts of an exception are texts and lists")
    if any(type(text) is not str for text in (*plain["arguments"], *plain["notes"])):
        raise Fault("the arguments and notes of an exception are texts")
    return RemoteError(
        plain["type"],
        plain["text"],
        tuple(plain["arguments"]),
        plain["trace"],
        None if plain["cause"] is None else _unpack(plain["cause"]),
        tuple(plain["notes"]),
        tuple(_unpack(member) for member in plain["members"]),
    )
