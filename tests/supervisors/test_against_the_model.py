"""Random families and random events: the rules, and the supervising loop itself, against the model."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Literal, TypeAlias

import anyio
import attrs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import greenroom as gr
from greenroom.supervisors.options import RestartType, StrategyType
from greenroom.supervisors.restarts import ChildView, GiveUp, History, Leave, Limit, Restart, Rules, decide
from tests.conformance.probes import Boom, Crash, End, Log, settle
from tests.supervisors.families import TEMPORARY, eighths, exits, limits, names, restart_types, strategies
from tests.supervisors.model import Model

# ---------------------------------------------------------------------------------------------------------- the rules


class Supervision(RuleBasedStateMachine):
    """Compares a supervisor without event loop, which performs what the rules decide, with the model after every event."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.views: list[ChildView] = []
        self.history: History = ()
        self.gave_up = False
        self.numbers = 0

    @initialize(strategy=strategies, limit=limits, types=st.lists(restart_types, min_size=1, max_size=5))
    def start(self, strategy: StrategyType, limit: Limit, types: list[RestartType]) -> None:
        self.spec = Rules(strategy, limit)
        self.model = Model(strategy, limit)
        for restart in types:
            self.add(restart)

    def add(self, restart: RestartType) -> None:
        self.numbers += 1
        name = f"child {self.numbers}"
        self.views.append(ChildView(name, restart))
        self.model.add(name, restart)

    def running(self) -> list[str]:
        return [view.name for view in self.views if view.running]

    def set_state(self, name: str, *, running: bool, restarting: bool = False) -> None:
        index = names(self.views).index(name)
        self.views[index] = ChildView(name, self.views[index].restart, running=running, restarting=restarting)

    def perform(self, name: str, exit: gr.Exit | None, fails: str | None) -> None:
        """What the supervising loop does; the next start of `fails` fails."""
        decision = decide(self.spec, self.views, name, exit, self.now, self.history)
        match decision:
            case GiveUp():
                self.gave_up = True
            case Leave():
                if decision.remove:
                    self.views = [view for view in self.views if view.name != name]
            case Restart():
                self.history = decision.history
                for one in decision.stop:
                    self.set_state(one, running=False)
                self.views = [view for view in self.views if view.name not in decision.forget]
                for one in decision.start:
                    self.set_state(one, running=False)  # a retry of its own that was queued is void
                for one in decision.start:
                    if one == fails:
                        self.set_state(one, running=False, restarting=True)
                        break
                    self.set_state(one, running=True)

    # The events ------------------------------------------------------------------------------------------------------

    @rule(seconds=eighths(0, 12))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.gave_up and self.running())
    @rule(data=st.data(), exit=exits)
    def a_child_ends(self, data: st.DataObject, exit: gr.Exit) -> None:
        name = data.draw(st.sampled_from(self.running()))
        fails = data.draw(st.sampled_from([None, *names(self.views)]))
        self.set_state(name, running=False)
        self.perform(name, exit, fails)
        self.model.failures = Counter([fails] if fails is not None else [])
        self.model.ended(name, exit, self.now)

    @precondition(lambda self: not self.gave_up and any(view.restarting for view in self.views))
    @rule(data=st.data())
    def a_failed_restart_is_tried_again(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([view.name for view in self.views if view.restarting]))
        fails = data.draw(st.sampled_from([None, *names(self.views)]))
        self.perform(name, None, fails)
        self.model.failures = Counter([fails] if fails is not None else [])
        self.model.retry(name, self.now)

    @precondition(lambda self: not self.gave_up)
    @rule(restart=restart_types)
    def a_child_is_added(self, restart: RestartType) -> None:
        self.add(restart)

    @precondition(lambda self: not self.gave_up and self.running())
    @rule(data=st.data())
    def a_child_is_terminated_by_hand(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.running()))
        if self.model.find(name).restart is TEMPORARY:
            self.views = [view for view in self.views if view.name != name]
        else:
            self.set_state(name, running=False)
        self.model.terminate(name)

    # What must hold after each ---------------------------------------------------------------------------------------

    @invariant()
    def both_agree_on_the_end(self) -> None:
        assert self.gave_up == self.model.gave_up

    @invariant()
    def both_agree_on_who_is_there_and_in_which_state(self) -> None:
        if not self.gave_up:
            assert [(view.name, view.running, view.restarting) for view in self.views] == [
                (slot.name, slot.up, slot.retrying) for slot in self.model.children
            ]

    @invariant()
    def no_window_holds_more_restarts_than_the_intensity(self) -> None:
        for start in self.model.counted:
            within = [moment for moment in self.model.counted if start <= moment <= start + self.spec.limit.period]
            assert len(within) <= self.spec.limit.intensity


TestSupervision = Supervision.TestCase


# ----------------------------------------------------------------------------------------------------------- the loop

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
wide_limits = st.builds(Limit, st.integers(0, 6), st.sampled_from((1.0, 4.0, 16.0)))


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


@given(
    strategy=st.sampled_from(StrategyType),
    limit=wide_limits,
    family=st.lists(restart_types, min_size=1, max_size=5),
    deeds=deeds,
)
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
