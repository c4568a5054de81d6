"""Classes that another layer knows how to encode, by two functions (a Ref as path and incarnation)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from greenroom.codec.dynamic import Dynamic
from greenroom.codec.plan import Fault, Plain, Tagged, expected, tagged

T = TypeVar("T")


def external_form(
    cls: type[T], tag: str, to_plain: Callable[[T], object], from_plain: Callable[[Any], T], dynamic: Dynamic
) -> Tagged:
    def pack(value: Any) -> Plain:
        try:
            given = to_plain(value)
        except Exception as error:  # the function is not ours and may raise anything
            raise Fault(f"the to_plain function of {cls.__name__} raised {type(error).__qualname__}") from error
        return dynamic.pack(given)

    def unpack(body: Plain) -> T:
        given = dynamic.unpack(body)
        try:
            value = from_plain(given)
        except Exception as error:  # as above
            raise Fault(f"the from_plain function of {cls.__name__} raised {type(error).__qualname__}") from error
        if type(value) is not cls:
            raise expected(f"{cls.__name__} from its from_plain function", value)
        return value

    return tagged(tag, pack, unpack)
