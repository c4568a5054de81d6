"""Durations at the ends of what a float can hold."""

from __future__ import annotations

import math
import sys

import anyio
import attrs
import pytest

import greenroom as gr


@attrs.frozen
class Set(gr.Message[None]):
    period: float


@attrs.frozen
class Tick(gr.Message[None]):
    pass


class Clock(gr.Actor):
    def __init__(self) -> None:
        self.ticks: list[float] = []

    @gr.handles
    async def set(self, message: Set) -> None:
        self.context.every(message.period, Tick(), key="the one")

    @gr.handles
    async def tick(self, message: Tick) -> None:
        self.ticks.append(anyio.current_time())
        if len(self.ticks) == 20:
            self.context.cancel("the one")


@pytest.mark.parametrize("period", [1e-9, 1e-17, sys.float_info.min, 5e-324])
async def test_a_period_too_short_to_tell_two_moments_apart_neither_ends_the_runtime_nor_hangs_it(
    period: float,
) -> None:
    clocks: list[Clock] = []

    def make() -> Clock:
        clocks.append(Clock())
        return clocks[-1]

    async with gr.Runtime(gr.Supervisor("app", gr.Child("clock", make))) as runtime:
        await anyio.sleep(1_000)  # the later it is, the farther two moments are apart
        await runtime.ref("app/clock").ask(Set(period))
        await anyio.sleep(1)
    (clock,) = clocks
    assert len(clock.ticks) == 20
    assert clock.ticks == sorted(clock.ticks)


@pytest.mark.parametrize("period", [math.inf, sys.float_info.max])
async def test_a_timer_that_is_due_never_harms_nobody(period: float) -> None:
    async with gr.Runtime(gr.Supervisor("app", gr.Child("clock", Clock))) as runtime:
        await runtime.ref("app/clock").ask(Set(period))
        await anyio.sleep(1_000)
        assert runtime.ref("app/clock").incarnation == 1
