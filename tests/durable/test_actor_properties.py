"""Any number of transfers between durable actors, killed and crashed anywhere: each is applied once, and no cent is lost or made.

The model is a sum. A scenario is drawn by hypothesis; `interrupt_everywhere` runs it undisturbed, then kills it at some of its points,
and compares the tables with what was committed.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import anyio
import attrs
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

import greenroom as gr
from greenroom.testing import interrupt_everywhere
from tests.durable.helpers import Boom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.testing import Life
    from greenroom.testing.virtual_clock import Backend
    from tests.persistence.postgres.servers import Server

KEYS = ("ann", "bob", "cat")


@frozen
class Account:
    """What an account holds, and the steps that it has applied, in order."""

    cents: int = 100
    applied: tuple[str, ...] = ()

    def after(self, step: str, cents: int) -> Account:
        return Account(self.cents + cents, (*self.applied, step))


@frozen
class Transfer(gr.Message[int]):
    """Give cents to the next account of the route, which passes them on, `delay` seconds later, until the route ends."""

    name: str
    cents: int
    route: tuple[str, ...]
    delay: float
    reply_wanted: bool = False


@frozen
class Pass(gr.Message[None]):
    """The delay is over."""

    transfer: Transfer


@frozen
class Look(gr.Message[Account]):
    """The reply is the account."""


class Teller(gr.DurableActor[Account]):
    """Applies transfers. Crashes as often as the world wants it to."""

    def __init__(self, crashes: Counter[str]) -> None:
        self.crashes = crashes
        self.state = Account()

    @gr.handles
    async def transfer(self, message: Transfer) -> int:
        self.state = self.state.after(f"in {message.name}", message.cents)
        if message.delay:
            self.context.after(message.delay, Pass(message), key=f"{message.name} {len(message.route)}")
        else:
            await self._pass(message)
        self._crash(f"{self.context.key} {message.name}")
        return self.state.cents

    @gr.handles
    async def forward(self, message: Pass) -> None:
        await self._pass(message.transfer)
        self._crash(f"{self.context.key} pass {message.transfer.name}")

    async def _pass(self, message: Transfer) -> None:
        if message.route:
            self.state = self.state.after(f"out {message.name}", -message.cents)
            following = self.context.runtime.ref(f"bank/accounts/{message.route[0]}")
            await following.send(attrs.evolve(message, route=message.route[1:]))

    def _crash(self, step: str) -> None:
        if self.crashes[step] > 0:
            self.crashes[step] -= 1
            raise Boom(step)

    @gr.handles
    async def look(self, message: Look) -> Account:
        return self.state


@frozen
class Plan:
    """A scenario: what is sent, by which way each goes, and where handlers crash."""

    transfers: tuple[Transfer, ...]
    crashes: dict[str, int]

    def expected(self) -> dict[str, Counter[str]]:
        """What each account has applied in the end."""
        steps: dict[str, Counter[str]] = {key: Counter() for key in KEYS}
        for transfer in self.transfers:
            for number, key in enumerate(transfer.route):
                steps[key][f"in {transfer.name}"] += 1
                if number + 1 < len(transfer.route):
                    steps[key][f"out {transfer.name}"] += 1
        return steps


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    transfers, crashes = [], {}
    for number in range(draw(st.integers(1, 3))):
        name = f"t{number}"
        route = tuple(draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3)))
        transfers.append(
            Transfer(name, draw(st.integers(1, 50)), route, draw(st.sampled_from([0.0, 0.0, 5.0])), draw(st.booleans()))
        )
        for key in set(route):
            for step in (f"{key} {name}", f"{key} pass {name}"):
                if times := draw(st.sampled_from([0, 0, 1, 2])):
                    crashes[step] = times
    return Plan(tuple(transfers), crashes)


def bank(crashes: Counter[str]) -> gr.Supervisor:
    pool = gr.DurableActors("accounts", Teller, crashes, max_resident=2, idle=20.0, max_deliveries=100)
    return gr.Supervisor("bank", pool)


async def scenario(plan: Plan, life: Life) -> None:
    crashes: Counter[str] = life.kept.setdefault("crashes", Counter(plan.crashes))
    async with gr.Runtime(bank(crashes), store=attrs.evolve(life.store, sweep=5.0)) as runtime:
        for transfer in plan.transfers:
            first = runtime.ref(f"bank/accounts/{transfer.route[0]}")
            message = attrs.evolve(transfer, route=transfer.route[1:])
            if transfer.reply_wanted:
                await first.ask(message, message_id=transfer.name, timeout=None)
            else:
                await first.send(message, message_id=transfer.name)
        await anyio.sleep(200)
        accounts = {
            key: await runtime.ref(f"bank/accounts/{key}").ask(Look(), message_id=f"look {life.number}", timeout=None)
            for key in KEYS
        }
    assert {key: Counter(account.applied) for key, account in accounts.items()} == plan.expected()
    cents = {transfer.name: transfer.cents for transfer in plan.transfers}
    for account in accounts.values():
        moved = [(1 if way == "in" else -1) * cents[name] for way, name in map(str.split, account.applied)]
        assert account.cents == 100 + sum(moved)
    assert sum(account.cents for account in accounts.values()) == 100 * len(KEYS) + sum(cents.values())


def check(plan: Plan, seed: int, backend: Backend, server: str | None, share: float) -> Sequence[str]:
    tried = interrupt_everywhere(
        lambda life: scenario(plan, life), server=server, backend=backend, seed=seed, sample=(seed, share)
    )
    return tried.trials


@settings(max_examples=5)
@given(plan=plans(), seed=st.integers(0, 1000))
def test_i5_every_transfer_is_applied_once_wherever_a_life_ends_on_sqlite(
    backend: Backend, plan: Plan, seed: int
) -> None:
    assert check(plan, seed, backend, None, 0.03)


def test_i5_every_transfer_is_applied_once_wherever_a_life_ends_on_postgres(backend: Backend, postgres: Server) -> None:
    route = ("ann", "bob", "cat", "ann")
    transfers = (Transfer("t0", 10, route, 0.0), Transfer("t1", 20, ("bob", "ann"), 5.0, reply_wanted=True))
    assert check(Plan(transfers, {"bob t0": 1, "ann pass t1": 1}), 1, backend, postgres.url, 0.03)


@pytest.mark.full
def test_i5_every_transfer_is_applied_once_at_every_point_twice(backend: Backend) -> None:
    transfers = (Transfer("t0", 10, ("ann", "bob"), 0.0), Transfer("t1", 20, ("bob", "ann"), 5.0))
    plan = Plan(transfers, {"bob t0": 1})
    tried = interrupt_everywhere(lambda life: scenario(plan, life), backend=backend, twice=True, sample=(0, 0.09))
    assert len(tried.trials) > 40
