"""A PostgreSQL store's URL, and the limits that its sessions live under."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, urlencode, urlunsplit

from attrs import field, frozen, validators

from greenroom.errors import BadStoreUrl
from greenroom.persistence.urls import split_url, without_password

SCHEMES: Final = frozenset({"postgresql", "postgres"})
NEEDS_ASYNCPG: Final = "PostgreSQL needs asyncpg: pip install 'greenroom[postgres]'"
LONGEST_SCHEMA: Final = 48
"""Bytes of a schema's name: with a prefix it is the name of a channel, and PostgreSQL has room for 63."""


@frozen(kw_only=True)
class Target:
    """Where a store is, and what was asked of it."""

    text: str
    """The URL without its password, for error texts."""
    dsn: str
    """For asyncpg: the URL without our own options."""
    schema: str = "greenroom"
    reduced: bool = False
    """Less than a durable acknowledgement was asked for, or is put up with."""

    @property
    def channel(self) -> str:
        """What sessions tell each other by."""
        return f"greenroom.{self.schema}"


def parse_target(url: str) -> Target:
    """Take a PostgreSQL URL apart. `schema` and `durability` are ours; every other option goes to asyncpg.

    Raises:
        BadStoreUrl: an option has no sense.
    """
    parts = split_url(url)
    shown = without_password(url)
    if parts.scheme not in SCHEMES:
        raise BadStoreUrl(shown, "a PostgreSQL URL begins with postgresql://")
    ours: dict[str, str] = {}
    theirs: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in ("schema", "durability"):
            theirs.append((name, value))
        elif name in ours:
            raise BadStoreUrl(shown, f"the option {name!r} is there twice")
        else:
            ours[name] = value
    schema, durability = ours.get("schema", "greenroom"), ours.get("durability", "full")
    if not 0 < len(schema.encode()) <= LONGEST_SCHEMA or "\0" in schema:
        raise BadStoreUrl(shown, f"schema={schema}: a schema's name has 1 to {LONGEST_SCHEMA} bytes")
    if durability not in ("full", "reduced"):
        raise BadStoreUrl(shown, f"durability={durability}: choose full or reduced")
    dsn = urlunsplit(parts._replace(query=urlencode(theirs)))
    return Target(text=shown, dsn=dsn, schema=schema, reduced=durability == "reduced")


@frozen(kw_only=True)
class Limits:
    """For how long a session may do what: all below a third of the lease, so that one that was stopped or cut off lets go of
    its locks while its owner's lease still lasts (R12)."""

    lease: float = field(default=30.0, validator=validators.gt(0))
    """Seconds."""

    @property
    def third(self) -> float:
        return self.lease / 3

    @property
    def call(self) -> float:
        """Seconds that we wait for an answer: more than the server gives itself."""
        return 0.95 * self.third

    def settings(self) -> dict[str, str]:
        """The settings of a session."""
        return {
            "statement_timeout": _milliseconds(0.8 * self.third),
            "lock_timeout": _milliseconds(0.6 * self.third),
            "idle_in_transaction_session_timeout": _milliseconds(0.5 * self.third),
            "tcp_keepalives_idle": str(self.keepalive_idle),
            "tcp_keepalives_interval": str(self.keepalive_interval),
            "tcp_keepalives_count": "2",
            "tcp_user_timeout": _milliseconds(0.8 * self.third),
            # Plans must not depend on what the tables held when they were made (R6).
            "plan_cache_mode": "force_generic_plan",
            "jit": "off",
            "enable_seqscan": "off",
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "default_transaction_isolation": "read committed",
            "timezone": "UTC",
        }

    @property
    def keepalive_idle(self) -> int:
        """Seconds of silence before the first probe. PostgreSQL takes whole ones, and 0 would be the system's default."""
        return max(1, int(0.3 * self.third))

    @property
    def keepalive_interval(self) -> int:
        return max(1, int(0.2 * self.third))


def _milliseconds(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"
