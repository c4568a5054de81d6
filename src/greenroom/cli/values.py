"""Values that are given as JSON on the command line, and the classes that they are of."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from greenroom.codec import import_class
from greenroom.errors import Misuse, NotEncodable, Undecodable
from greenroom.runtime.durable.payloads import Payloads

TAG = "$"


class BadValue(Misuse, ValueError):
    """What was given as JSON is no value of its class. The message is one line."""


def value_of(text: str, type_name: str | None, what: str) -> Any:
    """The value that a text gives.

    Args:
        text: JSON; of a class, its fields as an object.
        type_name: `MODULE:CLASS`. None: what the object itself says as `"$"`, or plain JSON.
        what: for people: "the request".
    Raises:
        BadValue: names what is wrong with it.
    """
    try:
        plain = msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise BadValue(f"{what} is not JSON: {error}") from error
    if type_name is None:
        type_name = plain.get(TAG) if isinstance(plain, dict) else None
        if type_name is None:
            return plain
    if not isinstance(plain, dict):
        raise BadValue(f"{what} of class {type_name} has to be a JSON object with its fields, and not {text}")
    payloads = Payloads()
    tag = _tag(payloads, type_name, what)
    try:
        return payloads.decode(msgspec.json.encode({TAG: tag, **{k: v for k, v in plain.items() if k != TAG}}), what)
    except Undecodable as error:
        raise BadValue(str(error)) from error


def _tag(payloads: Payloads, type_name: object, what: str) -> str:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        found = import_class(str(type_name))
        return payloads.tags(found)[0]
    except (LookupError, NotEncodable) as error:
        raise BadValue(f"{what} cannot be of class {type_name!r}: {error}") from error
    except Exception as error:  # importing may raise anything
        said = f"importing it raised {type(error).__name__}: {error}"
        guard = "what a program does when it is run belongs under `if __name__ == '__main__':`"
        raise BadValue(f"{what} cannot be of class {type_name!r}: {said} ({guard})") from error
