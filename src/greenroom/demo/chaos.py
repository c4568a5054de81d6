"""Chaos: crashes the other actors of the desk while they work, to see them heal.

When and whom is planned from a seed, and counted in answered files rather than in seconds, so that a plan does not depend
on how quick the machine is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

import greenroom as gr
from greenroom.demo.desk_actor import DeskActor, Strike, Way

STRIKES: Final = 24
"""Strikes of one run at most: a run has to end."""


@attrs.frozen
class Answered(gr.Message[None]):
    """From the clerk: one more file has its result. Counts for good, also when a crash loses that result again."""


@attrs.frozen
class HowOften(gr.Message[int]):
    """How many strikes have been made?"""


@attrs.frozen(kw_only=True)
class PlannedStrike:
    """Strike `victim` in this way when so many files have been answered."""

    after: int
    victim: str
    way: Way


def plan(seed: int, victims: Mapping[str, Sequence[Way]]) -> Iterator[PlannedStrike]:
    """Plan `STRIKES` strikes.

    Each victim has its turn once before any has its second. The gaps grow with what has been answered, so that small
    folders see several strikes and large ones are struck to their end.

    Args:
        seed: the same seed and victims give the same plan.
        victims: by name relative to the desk, the ways that each may be struck; the order matters, too.
    """
    dice = random.Random(seed)
    after = 0
    turn: list[str] = []
    for _ in range(STRIKES if victims else 0):
        if not turn:
            turn = dice.sample(list(victims), len(victims))
        victim = turn.pop()
        after += dice.randint(1, max(3, after))
        yield PlannedStrike(after=after, victim=victim, way=dice.choice(victims[victim]))


class Chaos(DeskActor):
    """Makes the strikes of a plan. It is not among its own victims: after a crash it would begin again.

    Args:
        seed, victims: as of `plan`.
    """

    def __init__(self, seed: int, victims: Mapping[str, Sequence[Way]]) -> None:
        self._plan = plan(seed, victims)
        self._next = next(self._plan, None)
        self._answered = 0
        self._made = 0

    @gr.handles
    async def answered(self, message: Answered) -> None:
        """Count, and strike when it is time; in the nursery, since a full mailbox makes a strike wait."""
        self._answered += 1
        while self._next is not None and self._answered >= self._next.after:
            self.context.nursery.start_soon(self._make, self._next)
            self._next = next(self._plan, None)

    @gr.handles
    async def how_often(self, message: HowOften) -> int:
        """For the report."""
        return self._made

    async def _make(self, strike: PlannedStrike) -> None:
        try:
            await self.neighbour(strike.victim).send(Strike(strike.way))
        except (gr.ActorStopped, gr.NoSuchActor):
            return  # it is down as it is
        self._made += 1
