"""Delays before restarts: beyond OTP, by choice."""

from __future__ import annotations

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Log, Touch, below_top, crash, states

PLENTY = 100
"""Restarts allowed, where the intensity is not the matter."""


def gaps(log: Log, first: str, then: str) -> list[float]:
    """Seconds from each `first` to the `then` after it."""
    return [round(b - a, 3) for a, b in zip(log.when(first), log.when(then)[1:], strict=False)]


def delays(events: list[gr.Event]) -> list[float]:
    return [event.delay for event in events if isinstance(event, gr.RestartDelayed)]


async def test_the_delay_grows_with_each_crash_in_a_row_up_to_its_maximum() -> None:
    log = Log()
    backoff = gr.Backoff(1.0, maximum=5.0, factor=2.0, jitter=0.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=backoff), intensity=PLENTY)) as runtime:
        for seconds in (1.0, 2.0, 4.0, 5.0, 5.0):
            await crash(runtime.ref("sup/a"))
            await anyio.sleep(seconds)
        assert gaps(log, "die a", "start a") == [1.0, 2.0, 4.0, 5.0, 5.0]


async def test_the_delay_starts_again_at_its_beginning_after_a_healthy_time() -> None:
    log = Log()
    backoff = gr.Backoff(1.0, factor=2.0, jitter=0.0, reset_after=30.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=backoff), intensity=PLENTY)) as runtime:
        for delay, healthy in ((1.0, 29.0), (2.0, 29.0), (4.0, 30.0), (1.0, 0.0)):
            await crash(runtime.ref("sup/a"))
            await anyio.sleep(delay + healthy)
        assert gaps(log, "die a", "start a") == [1.0, 2.0, 4.0, 1.0]


async def test_failed_restarts_make_the_delay_grow_however_healthy_the_child_was_before() -> None:
    log = Log()
    log.next_starts("a", None, Boom(), Boom(), Boom())
    backoff = gr.Backoff(1.0, factor=2.0, jitter=0.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=backoff), intensity=PLENTY)) as runtime:
        await anyio.sleep_until(1000.0)
        await crash(runtime.ref("sup/a"))
        await anyio.sleep_until(1100.0)
        assert log.when("fail a") == [1001.0, 1003.0, 1007.0]
        assert log.when("start a") == [0.0, 1015.0]


async def test_jitter_only_shortens_a_delay_and_by_no_more_than_its_share() -> None:
    log = Log()
    backoff = gr.Backoff(8.0, maximum=8.0, jitter=0.5)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=backoff), intensity=PLENTY)) as runtime:
        events = runtime.events()
        for _ in range(40):
            await crash(runtime.ref("sup/a"))
            await anyio.sleep(9.0)
        found = delays(events.pending())
        assert len(found) == 40
        assert all(4.0 <= delay <= 8.0 for delay in found)
        assert max(found) - min(found) > 1.0


async def test_a_delayed_child_counts_as_restarting_and_its_messages_wait() -> None:
    log = Log()
    backoff = gr.Backoff(10.0, jitter=0.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=backoff), log.child("b"))) as runtime:
        sup = runtime.ref("sup")
        await crash(runtime.ref("sup/a"))
        assert await states(sup) == {"a": "restarting", "b": "running"}
        assert await sup.count_children() == gr.ChildCounts(specs=2, active=1, supervisors=0, workers=2)
        with pytest.raises(gr.ChildRestarting):
            await sup.restart_child("a")
        with pytest.raises(gr.ActorDown):
            await runtime.ref("sup/a").ask(Touch(), when_down="fail")
        assert await runtime.ref("sup/a").ask(Touch(), timeout=20.0) == 1
        assert anyio.current_time() == pytest.approx(10.0)


async def test_terminating_a_delayed_child_cancels_the_delay() -> None:
    log = Log()
    backoff = gr.Backoff(10.0, jitter=0.0)
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=backoff))) as runtime:
        sup = runtime.ref("sup")
        await crash(runtime.ref("sup/a"))
        await sup.terminate_child("a")
        assert await states(sup) == {"a": "down"}
        await anyio.sleep(60.0)
        assert log.take() == ["start a", "die a"]
        await sup.restart_child("a")
        assert await states(sup) == {"a": "running"}


async def test_a_stop_does_not_wait_for_a_delay() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", log.child("a", backoff=gr.Backoff(10.0)), log.child("b"))) as runtime:
        await crash(runtime.ref("sup/a"))
        before = anyio.current_time()
        report = await runtime.stop()
        assert anyio.current_time() == before
        assert report.stopped == ("sup/b",)


async def test_a_supervisors_backoff_is_that_of_children_that_have_none() -> None:
    log = Log()
    own = gr.Backoff(1.0, jitter=0.0)
    tree = gr.Supervisor(
        "sup", log.child("a"), log.child("b", backoff=own), backoff=gr.Backoff(7.0, jitter=0.0), intensity=PLENTY
    )
    async with gr.Runtime(tree) as runtime:
        await crash(runtime.ref("sup/a"), runtime.ref("sup/b"))
        await anyio.sleep(10.0)
        assert gaps(log, "die a", "start a") == [7.0]
        assert gaps(log, "die b", "start b") == [1.0]


async def test_a_group_waits_stopped_for_the_delay_of_the_child_that_crashed() -> None:
    log = Log()
    children = (log.child("a"), log.child("b", backoff=gr.Backoff(5.0, jitter=0.0)), log.child("c"))
    async with gr.Runtime(gr.Supervisor("sup", *children, strategy="one_for_all")) as runtime:
        log.take()
        await crash(runtime.ref("sup/b"))
        assert log.entries == ["die b", "stop c", "stop a"]
        assert set((await states(runtime.ref("sup"))).values()) == {"restarting"}
        await anyio.sleep(5.0)
        assert log.take() == ["die b", "stop c", "stop a", "start a", "start b", "start c"]


async def test_a_delayed_restart_counts_once() -> None:
    log = Log()
    sup = gr.Supervisor(
        "sup", log.child("a", backoff=gr.Backoff(1.0, jitter=0.0)), intensity=2, period=60.0, restart="temporary"
    )
    async with below_top(sup) as runtime:
        for _ in range(2):
            await crash(runtime.ref("top/sup/a"))
            await anyio.sleep(5.0)
        assert await states(runtime.ref("top")) == {"sup": "running"}
        await crash(runtime.ref("top/sup/a"))
        assert await states(runtime.ref("top")) == {}


async def test_two_delayed_children_wait_each_for_itself() -> None:
    log = Log()
    children = [log.child(name, backoff=gr.Backoff(seconds, jitter=0.0)) for name, seconds in (("a", 3.0), ("b", 1.0))]
    async with gr.Runtime(gr.Supervisor("sup", *children, intensity=PLENTY)) as runtime:
        await crash(runtime.ref("sup/a"), runtime.ref("sup/b"))
        await anyio.sleep(1.5)
        assert await states(runtime.ref("sup")) == {"a": "restarting", "b": "running"}
        await anyio.sleep(3.0)
        assert await states(runtime.ref("sup")) == {"a": "running", "b": "running"}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"initial": 0.0}, "initial"),
        ({"initial": -1.0}, "initial"),
        ({"initial": 2.0, "maximum": 1.0}, "maximum is below"),
        ({"initial": 1.0, "factor": 0.5}, "factor"),
        ({"initial": 1.0, "factor": "2"}, "factor"),
        ({"initial": 1.0, "jitter": 1.5}, "jitter"),
        ({"initial": 1.0, "jitter": -0.1}, "jitter"),
        ({"initial": 1.0, "reset_after": -1.0}, "reset_after"),
    ],
)
def test_a_backoff_that_cannot_work_is_refused_by_name(options: dict[str, float], what: str) -> None:
    with pytest.raises(gr.BadSpec, match=what):
        gr.Backoff(**options)
