"""Payloads, and the content store for those that are large.

A payload up to `INLINE_LIMIT` lies in the row that it belongs to. A larger one is kept once under the digest of its bytes,
and rows name it as `Content`; it is durable before the transition that names it is submitted (R31). Above `HARD_LIMIT`
nothing is stored at all.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from attrs import Attribute, frozen

from greenroom.errors import PayloadTooLarge, Undecodable
from greenroom.persistence.transitions import Query, Transition

if TYPE_CHECKING:
    from greenroom.persistence.store import Store

INLINE_LIMIT: Final = 64 * 1024
"""Bytes that lie in a row."""

HARD_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of the largest payload."""

CHUNK: Final = 256 * 1024
"""Bytes of one row of the content store."""


@frozen
class Content:
    """Bytes in the content store, by their digest."""

    digest: str
    """SHA-256, in hexadecimal."""
    size: int


Payload = bytes | Content


def columns_of(payload: Payload | None) -> tuple[bytes | None, int | None]:
    """A payload as its two columns: the bytes, and no size; or the digest of a content, and its size."""
    if isinstance(payload, Content):
        return payload.digest.encode(), payload.size
    return payload, None


def payload_of(data: bytes | None, size: int | None) -> Payload | None:
    """A payload from its two columns."""
    return data if data is None or size is None else Content(data.decode(), size)


def body_of(data: bytes, size: int | None) -> Payload:
    """A payload that is there, from its two columns."""
    return data if size is None else Content(data.decode(), size)


def digest_of(data: bytes) -> str:
    """The digest under which bytes are kept."""
    return sha256(data).hexdigest()


def message_digest(type_name: str, data: bytes) -> str:
    """What makes two messages of one identity the same message: their type and their bytes."""
    return sha256(type_name.encode() + b"\n" + data).hexdigest()


def fits_inline(_: object, attribute: Attribute[Any], value: object) -> None:
    """An attrs validator for payload fields."""
    if isinstance(value, bytes) and len(value) > INLINE_LIMIT:
        raise PayloadTooLarge(
            attribute.name, len(value), INLINE_LIMIT, "bring it to the content store first, by `await stow(store, ...)`"
        )


@frozen(kw_only=True)
class PutContent(Transition["Content"]):
    """Keep bytes under their digest. Keeping them twice is keeping them once, for longer. Answers `Content`.

    Raises:
        PayloadTooLarge: above `HARD_LIMIT`.
    """

    data: bytes

    def __attrs_post_init__(self) -> None:
        if len(self.data) > HARD_LIMIT:
            raise PayloadTooLarge("the content", len(self.data), HARD_LIMIT)


@frozen(kw_only=True)
class ReadContent(Query["bytes | None"]):
    """The bytes kept under a digest; None when there are none."""

    digest: str


async def stow(store: Store, data: bytes, *, name: str = "the payload") -> Payload:
    """Make a payload of bytes: as they are when they are small, else kept in the content store, durably.

    Raises:
        PayloadTooLarge: above `HARD_LIMIT`; `name` tells whose they were.
        StoreUnavailable: as by `Store.commit`.
    """
    if len(data) <= INLINE_LIMIT:
        return data
    if len(data) > HARD_LIMIT:
        raise PayloadTooLarge(name, len(data), HARD_LIMIT)
    answer = await store.commit(PutContent(data=data))
    assert isinstance(answer, Content)  # keeping bytes is never refused
    return answer


async def fetch(store: Store, payload: Payload) -> bytes:
    """The bytes of a payload, wherever they lie.

    Raises:
        Undecodable: the content is damaged, or gone, which only happens to what no row names.
        StoreUnavailable: as by `Store.read`.
    """
    if isinstance(payload, bytes):
        return payload
    data = await store.read(ReadContent(digest=payload.digest))
    if data is None or digest_of(data) != payload.digest:
        what = f"the content {payload.digest} ({payload.size:,} bytes)"
        raise Undecodable(what, "", "it is gone" if data is None else "its bytes are damaged: their digest is another")
    return data
