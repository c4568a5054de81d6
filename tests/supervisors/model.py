"""A supervisor in a page, after OTP's text: no event loop, no actors, no queue. What runs, what is down, and when it gives up."""

from __future__ import annotations

from collections import Counter

import greenroom as gr
from greenroom.supervisors.options import RestartType, StrategyType
from greenroom.supervisors.restarts import Limit


class Slot:
    """A child of the model."""

    def __init__(self, name: str, restart: RestartType) -> None:
        self.name = name
        self.restart = restart
        self.up = True
        self.retrying = False
        """Its restart has failed and is to be tried again."""


class Model:
    """The children in start order, and every restart that was ever counted."""

    def __init__(self, strategy: StrategyType, limit: Limit) -> None:
        self.strategy = strategy
        self.limit = limit
        self.children: list[Slot] = []
        self.counted: list[float] = []
        self.gave_up = False
        self.failures: Counter[str] = Counter()
        """How many of the next starts of a child fail."""

    def find(self, name: str) -> Slot:
        return next(slot for slot in self.children if slot.name == name)

    def states(self) -> dict[str, str]:
        return {slot.name: "running" if slot.up else "down" for slot in self.children}

    @property
    def retrying(self) -> list[str]:
        return [slot.name for slot in self.children if slot.retrying]

    # The events --------------------------------------------------------------------------------------------------

    def add(self, name: str, restart: RestartType) -> None:
        self.children.append(Slot(name, restart))

    def ended(self, name: str, exit: gr.Exit, now: float) -> None:
        """A child has ended by itself."""
        slot = self.find(name)
        slot.up = False
        if slot.restart is RestartType.TEMPORARY:
            self.children.remove(slot)
        elif slot.restart is RestartType.PERMANENT or not exit.clean:
            self._restart(slot, now)

    def retry(self, name: str, now: float) -> None:
        """A restart that has failed is tried again."""
        self._restart(self.find(name), now)

    def terminate(self, name: str) -> None:
        slot = self.find(name)
        slot.up = slot.retrying = False
        if slot.restart is RestartType.TEMPORARY:
            self.children.remove(slot)

    def restart_by_hand(self, name: str) -> None:
        slot = self.find(name)
        slot.up = self._start_succeeds(name)

    def delete(self, name: str) -> None:
        self.children.remove(self.find(name))

    # Restarts ----------------------------------------------------------------------------------------------------

    def _restart(self, slot: Slot, now: float) -> None:
        in_window = sum(moment >= now - self.limit.period for moment in self.counted)
        if in_window + 1 > self.limit.intensity:
            self.gave_up = True
            return
        self.counted.append(now)
        position = self.children.index(slot)
        group = {
            StrategyType.ONE_FOR_ONE: [slot],
            StrategyType.ONE_FOR_ALL: list(self.children),
            StrategyType.REST_FOR_ONE: self.children[position:],
        }[self.strategy]
        for one in group:
            one.up = one.retrying = False
            if one.restart is RestartType.TEMPORARY and one is not slot:
                self.children.remove(one)
        for one in group:
            if one in self.children:
                one.up = self._start_succeeds(one.name)
                one.retrying = not one.up
                if one.retrying:
                    return

    def _start_succeeds(self, name: str) -> bool:
        if self.failures[name] == 0:
            return True
        self.failures[name] -= 1
        return False
