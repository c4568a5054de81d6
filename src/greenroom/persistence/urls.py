"""Stores' URLs."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from attrs import field, frozen

from greenroom.errors import BadStoreUrl

_PASSWORD: Final = re.compile(r"^([^:/?#]+://[^:/?#]*):[^/?#]*@")


@frozen
class StoreUrl:
    """A store's URL, taken apart."""

    text: str
    scheme: str
    path: str
    """`:memory:`, or where the file is."""
    options: dict[str, str] = field(factory=dict)


def without_password(url: str) -> str:
    """A URL to be shown."""
    return _PASSWORD.sub(r"\1:***@", url)


def split_url(url: str) -> SplitResult:
    """The parts of a store's URL. Raises `BadStoreUrl` for a text that has none."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise BadStoreUrl(without_password(url), str(error)) from error


def parse_url(url: str) -> StoreUrl:
    """Take a store's URL apart. Three slashes begin a relative path, four an absolute one.

    Raises:
        BadStoreUrl: it names no database that Greenroom knows.
    """
    parts = split_url(url)
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            raise BadStoreUrl(url, f"the option {name!r} is there twice")
        options[name] = value
    if parts.scheme == "sqlite":
        if parts.fragment:
            raise BadStoreUrl(url, "it has a fragment (#...); write %23 for that sign in a path")
        if parts.netloc == ":memory:" and not parts.path:
            return StoreUrl(url, "sqlite", ":memory:", options)
        if parts.netloc or len(parts.path) < 2:
            raise BadStoreUrl(url, "an sqlite URL has three slashes and a path, or is sqlite://:memory:")
        return StoreUrl(url, "sqlite", unquote(parts.path[1:], errors="surrogateescape"), options)
    raise BadStoreUrl(url, f"there is no store of the kind {parts.scheme!r}")
