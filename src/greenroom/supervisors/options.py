"""The options of specifications: their types, their checks, and `Backoff`. Every check raises `BadSpec` and names the way out.

Defaults and meanings are OTP's (`supervisor`: child_spec(), sup_flags()); durations are seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal, TypeAlias, TypeVar

from attrs import frozen

from greenroom.errors import BadSpec
from greenroom.mailbox import is_seconds, is_whole

E = TypeVar("E", bound=StrEnum)

Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
Shutdown: TypeAlias = float | Literal["kill"] | None
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]


class RestartType(StrEnum):
    PERMANENT = "permanent"
    """Always restarted."""
    TRANSIENT = "transient"
    """Restarted after a fault only."""
    TEMPORARY = "temporary"
    """Never restarted; its spec goes with it."""


class StrategyType(StrEnum):
    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"


class AutoShutdownType(StrEnum):
    NEVER = "never"
    ANY_SIGNIFICANT = "any_significant"
    ALL_SIGNIFICANT = "all_significant"


def choice(kind: type[E], value: Any, where: str) -> E:
    """The member of an enum by its value."""
    try:
        return kind(value)
    except ValueError:
        options = ", ".join(repr(member.value) for member in kind)
        raise BadSpec(f"{where}={value!r}: choose one of {options}") from None


def check_seconds(value: Any, where: str, *, zero: bool = False) -> float:
    """A duration: seconds above 0 (`zero`: or 0)."""
    if not is_seconds(value, zero=zero):
        raise BadSpec(f"{where}={value!r}: a number of seconds, {'0 or more' if zero else 'above 0'}")
    return float(value)


def check_name(name: object, kind: str) -> str:
    """A name is a step of a path: a non-empty str without `/` or control characters, at most 200 characters."""
    if not isinstance(name, str) or not name.strip() or "/" in name or not name.isprintable() or len(name) > 200:
        raise BadSpec(
            f"{kind} name {name!r}: a name is 1 to 200 printable characters, not blank, without '/' (it is a step of a path)"
        )
    return name


def check_shutdown(value: object, where: str) -> Shutdown:
    """Seconds, `"kill"`, or None to wait without limit."""
    if value is None:
        return None
    if value == "kill":
        return "kill"
    if isinstance(value, str):
        raise BadSpec(f"{where}={value!r}: seconds (0 or more), 'kill', or None to wait without limit")
    return check_seconds(value, where, zero=True)


def check_intensity(value: Any, where: str) -> int:
    """How many restarts: a whole number, 0 or more."""
    if not is_whole(value, least=0):
        raise BadSpec(f"{where}intensity={value!r}: a whole number of restarts, 0 or more")
    return int(value)


def check_limit(limit: object, where: str) -> tuple[int, float]:
    """A child's own intensity: (restarts, period)."""
    if not (isinstance(limit, tuple) and len(limit) == 2):
        raise BadSpec(f"{where}intensity={limit!r}: a pair (restarts, period in seconds)")
    return check_intensity(limit[0], where), check_seconds(limit[1], where + "intensity period")


@frozen
class Backoff:
    """A growing delay before each restart in a row. A delayed child counts as restarting; stopping it cancels the delay.

    Args:
        initial: seconds before the first restart.
        maximum: the most it grows to. factor: by which it grows each time (>= 1).
        jitter: the share (0 to 1) of a delay that is random, so that many do not return at once.
        reset_after: healthy seconds after which it starts again at `initial`; None: `initial` seconds.
    Source of the reset rule: Akka, BackoffSupervisor.
    """

    initial: float
    maximum: float = 60.0
    factor: float = 2.0
    jitter: float = 0.2
    reset_after: float | None = None

    def __attrs_post_init__(self) -> None:
        check_seconds(self.initial, "Backoff(initial)")
        if check_seconds(self.maximum, "Backoff(maximum)") < self.initial:
            raise BadSpec(
                f"Backoff(initial={self.initial!r}, maximum={self.maximum!r}): the maximum is below the initial delay"
            )
        if not (_is_number(self.factor) and self.factor >= 1):
            raise BadSpec(f"Backoff(factor={self.factor!r}): a delay grows by a factor of 1 or more")
        if not (_is_number(self.jitter) and 0 <= self.jitter <= 1):
            raise BadSpec(f"Backoff(jitter={self.jitter!r}): a share between 0 and 1")
        if self.reset_after is not None:
            check_seconds(self.reset_after, "Backoff(reset_after)", zero=True)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
