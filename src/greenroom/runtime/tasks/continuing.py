"""What one segment of a task hands over to the next."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from attrs import evolve

from greenroom.persistence.journal import ContinueAs
from greenroom.runtime.tasks.journal import Stow, entry_of, stowed

if TYPE_CHECKING:
    from greenroom.runtime.durable.payloads import Encoded
    from greenroom.runtime.replay import ControlRow, SignalRow


async def continued(
    request: Encoded,
    rows: Iterable[SignalRow | ControlRow],
    at: datetime,
    stow: Stow,
    name: str,
    *,
    version: str | None = None,
) -> ContinueAs:
    """Another segment, with these rows of the one before as its first.

    Args:
        at: when it begins.
        name: of its request, for people.
        version: of the agent's code, when it is another one.
    """
    first = [await entry_of(evolve(row, seq=number, at=at), stow) for number, row in enumerate(rows, 1)]
    return ContinueAs(
        request=await stowed(request.body, stow, name),
        request_type=request.type,
        handed_over=tuple(evolve(entry, handed_over=True) for entry in first),
        version=version,
    )
