"""The durable actors of the scenarios."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import evolve, field, frozen

import greenroom as gr


@frozen
class Deposit(gr.Message[int]):
    """The reply is the balance."""

    name: str
    cents: int


@frozen
class Transfer(gr.Message[int]):
    """Send so much on to another account. The reply is what is left."""

    name: str
    cents: int
    to: str


@frozen
class Show(gr.Message["Account"]):
    """The reply is the account."""


@frozen
class Account:
    cents: int = 0
    booked: tuple[str, ...] = ()
    """Names of what was booked, in order."""


class Teller(gr.DurableActor[Account]):
    """Keeps an account."""

    def __init__(self) -> None:
        self.state = Account()

    def book(self, name: str, cents: int) -> int:
        self.state = Account(self.state.cents + cents, (*self.state.booked, name))
        return self.state.cents

    @gr.handles
    async def deposit(self, message: Deposit) -> int:
        return self.book(message.name, message.cents)

    @gr.handles
    async def transfer(self, message: Transfer) -> int:
        await self.context.runtime.ref(message.to).send(Deposit(message.name, message.cents))
        return self.book(message.name, -message.cents)

    @gr.handles
    async def show(self, message: Show) -> Account:
        return self.state


@frozen
class Job(gr.Message[str]):
    """The reply is made anew each time that the job is done."""

    name: str


class Clerk(gr.Actor):
    """Has a persistent mailbox, and no state but what the world outside sees of it.

    Args:
        done: how often each job was done, crashes included.
        crashes: how often a job crashes the clerk.
    """

    def __init__(self, done: Counter[str], crashes: dict[str, int]) -> None:
        self.done = done
        self.crashes = crashes

    @gr.handles
    async def job(self, message: Job) -> str:
        self.done[message.name] += 1
        if self.done[message.name] <= self.crashes.get(message.name, 0):
            raise RuntimeError(f"{message.name} is too much")
        return f"{message.name}, done {self.done[message.name]} times"


@frozen
class Tick(gr.Message[None]):
    pass


@frozen
class Wind(gr.Message[None]):
    """Let the watch tick so many times, a minute apart."""

    ticks: int


@frozen
class Ticks(gr.Message["Watch"]):
    """The reply is how the watch stands."""


@frozen
class Watch:
    wound: int = 0
    ticked: int = 0


class Clockwork(gr.DurableActor[Watch]):
    """Ticks by durable timers."""

    def __init__(self) -> None:
        self.state = Watch()

    @gr.handles
    async def wind(self, message: Wind) -> None:
        self.state = evolve(self.state, wound=message.ticks)
        self.context.after(60.0, Tick(), key="tick")

    @gr.handles
    async def tick(self, message: Tick) -> None:
        self.state = evolve(self.state, ticked=self.state.ticked + 1)
        if self.state.ticked < self.state.wound:
            self.context.after(60.0, Tick(), key="tick")

    @gr.handles
    async def ticks(self, message: Ticks) -> Watch:
        return self.state


@frozen
class Letter(gr.Message[None]):
    text: str


@frozen
class Write(gr.Message[int]):
    """Send a letter to the outside. The reply is how many were written."""

    text: str


@frozen
class Desk:
    written: int = 0
    answers: tuple[str, ...] = ()


@frozen
class AskOutside(gr.Message[str]):
    """The reply is the answer of the world outside."""


@frozen
class Look(gr.Message[Desk]):
    """The reply is the desk."""


class Writer(gr.DurableActor[Desk]):
    """Writes to the outside, and waits for answers from there.

    Args:
        told: called with the token of each callback.
    """

    def __init__(self, told: Any = None) -> None:
        self.told = told
        self.state = Desk()

    @gr.handles
    async def write(self, message: Write) -> int:
        self.context.publish("post", Letter(message.text))
        self.state = evolve(self.state, written=self.state.written + 1)
        return self.state.written

    @gr.handles
    async def ask_outside(self, message: AskOutside) -> str:
        callback = await self.context.callback("answer", timeout=None)
        self.told(callback.token)
        answer = str(await callback.wait())
        self.state = evolve(self.state, answers=(*self.state.answers, answer))
        return answer

    @gr.handles
    async def look(self, message: Look) -> Desk:
        return self.state


@frozen
class Round(gr.Message[int]):
    """Ask these tellers, one after another. The reply is the sum of their cents."""

    tellers: tuple[str, ...]
    cents: int


@frozen
class Sums:
    made: tuple[int, ...] = field(default=())


class Accountant(gr.DurableActor[Sums]):
    """Deposits at several tellers in the middle of one handler."""

    def __init__(self) -> None:
        self.state = Sums()

    @gr.handles
    async def round(self, message: Round) -> int:
        total = 0
        for path in message.tellers:
            total += await self.context.runtime.ref(path).ask(Deposit("round", message.cents), timeout=None)
        self.state = Sums((*self.state.made, total))
        return total
