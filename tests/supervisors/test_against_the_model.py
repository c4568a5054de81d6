"""The supervising loop itself against the model: random families and random events, on both event loops."""

from __future__ import annotations

import contextlib
from typing import Literal, TypeAlias

import anyio
import attrs
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.supervisors.options import RestartType, StrategyType
from greenroom.supervisors.restarts import Limit
from tests.conformance.probes import Boom, Crash, End, Log, settle
from tests.supervisors.model import Model

What: TypeAlias = Literal["crash", "end", "terminate", "restart", "delete", "add", "wait", "fail_next_start"]


@attrs.frozen
class Deed:
    """One thing done to the tree."""

    what: What
    whom: int
    """Which child: an index into those it can be done to, modulo their number."""


deeds = st.lists(
    st.builds(
        Deed,
        st.sampled_from(
            ("crash", "crash", "crash", "end", "terminate", "restart", "delete", "add", "wait", "fail_next_start")
        ),
        st.integers(0, 11),
    ),
    max_size=25,
)
families = st.lists(st.sampled_from(RestartType), min_size=1, max_size=5)
limits = st.builds(Limit, st.integers(0, 6), st.sampled_from((1.0, 4.0, 16.0)))


class Pair:
    """A running supervisor and the model of it, kept in step."""

    def __init__(self, strategy: StrategyType, limit: Limit) -> None:
        self.log = Log()
        self.model = Model(strategy, limit)
        self.numbers = 0

    def new_child(self, restart: RestartType) -> gr.Child:
        self.numbers += 1
        name = f"c{self.numbers}"
        self.model.add(name, restart)
        return self.log.child(name, restart=restart.value)

    def pick(self, deed: Deed, *, up: bool | None = None) -> str | None:
        able = [slot.name for slot in self.model.children if up is None or slot.up == up]
        return able[deed.whom % len(able)] if able else None

    async def do(self, deed: Deed, runtime: gr.Runtime) -> None:
        """Do it to both."""
        sup = runtime.ref("top/sup")
        now = anyio.current_time()
        match deed.what:
            case "wait":
                await anyio.sleep(float(deed.whom))
            case "add":
                restart = list(RestartType)[deed.whom % 3]
                await sup.start_child(self.new_child(restart))
            case "fail_next_start" if (name := self.pick(deed)) is not None:
                self.log.next_starts(name, Boom())
                self.model.failures[name] += 1
            case "crash" | "end" if (name := self.pick(deed, up=True)) is not None:
                runtime.ref(f"top/sup/{name}").tell(Crash() if deed.what == "crash" else End())
                self.model.ended(name, gr.Exit("error" if deed.what == "crash" else "normal"), now)
                while self.model.retrying and not self.model.gave_up:
                    self.model.retry(self.model.retrying[0], now)
                await settle()
            case "terminate" if (name := self.pick(deed)) is not None:
                await sup.terminate_child(name)
                self.model.terminate(name)
            case "restart" if (name := self.pick(deed, up=False)) is not None:
                with contextlib.suppress(gr.StartFailed):
                    await sup.restart_child(name)
                self.model.restart_by_hand(name)
            case "delete" if (name := self.pick(deed, up=False)) is not None:
                await sup.delete_child(name)
                self.model.delete(name)


@given(strategy=st.sampled_from(StrategyType), limit=limits, family=families, deeds=deeds)
async def test_the_loop_agrees_with_the_model_after_every_event(
    strategy: StrategyType, limit: Limit, family: list[RestartType], deeds: list[Deed]
) -> None:
    pair = Pair(strategy, limit)
    sup = gr.Supervisor(
        "sup",
        *(pair.new_child(restart) for restart in family),
        strategy=strategy.value,
        intensity=limit.intensity,
        period=limit.period,
        restart="temporary",
    )
    async with gr.Runtime(gr.Supervisor("top", sup)) as runtime:
        for deed in deeds:
            await pair.do(deed, runtime)
            top = await runtime.ref("top").which_children()
            assert (top == []) == pair.model.gave_up
            if pair.model.gave_up:
                return
            found = {info.name: info.state.value for info in reversed(await runtime.ref("top/sup").which_children())}
            assert list(found.items()) == list(pair.model.states().items())
