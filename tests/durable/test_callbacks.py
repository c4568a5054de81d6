"""Callbacks: one answer from outside, before, while or after it is waited for, and through the death of who waits (K05)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest
from attrs import define, field, frozen

import greenroom as gr
from greenroom.persistence import AnswerCallback, CallbackStatus, ReadCallback, digest_of, new_id, split_token
from greenroom.runtime.durable.payloads import Payloads
from greenroom.testing.wrapped_driver import WrappedDriver
from tests.durable.desks import DESK, Gate
from tests.durable.helpers import Boom, Note, raised, settled, until

if TYPE_CHECKING:
    from greenroom.persistence import Driver, Query
    from tests.durable.helpers import Shared


@frozen
class Pay(gr.Message[str]):
    """Wait for somebody outside to say that it is paid; the reply is what they said."""

    timeout: float | None = None
    crashes: int = 0
    """How often the desk crashes when it has the answer."""


@frozen
class PayBeside(Pay):
    """The same, by a concurrent handler."""


@define(eq=False)
class Ledger:
    """What a cashier has done."""

    tokens: list[str] = field(factory=list)
    answers: list[Any] = field(factory=list)
    opened: Gate = field(factory=Gate)
    """Between opening and waiting; open, unless a test closes it."""


class Cashier(gr.Actor):
    """Opens callbacks and waits for them."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @gr.handles
    async def pay(self, message: Pay) -> str:
        callback = await self.context.callback("payment", timeout=message.timeout)
        self.ledger.tokens.append(callback.token)
        self.ledger.opened.begun.set()
        await self.ledger.opened.opened.wait()
        try:
            answer = await callback.wait()
        except gr.WaitTimeout as error:
            raise gr.Rejected(str(error)) from error
        assert await callback.wait() == answer  # it can be asked again
        self.ledger.answers.append(answer)
        if len(self.ledger.answers) <= message.crashes:
            raise Boom("after the answer")
        return str(answer)

    @gr.handles(concurrency=4)
    async def pay_beside(self, message: PayBeside) -> str:
        return await self.pay(message)


def cashier(ledger: Ledger, *, gate: bool = False) -> gr.Child:
    if not gate:
        ledger.opened.opened.set()
    return gr.Child("desk", Cashier, ledger, mailbox=gr.PersistentMailbox())


async def test_k05_an_answer_that_comes_while_it_is_waited_for_ends_the_wait(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger)) as runtime, database.client() as client:
        await runtime.ref(DESK).send(Pay())
        await settled()
        assert await client.answer(ledger.tokens[0], "paid") == "accepted"
        await until(lambda: ledger.answers == ["paid"])


async def test_k05_an_answer_that_comes_before_the_wait_is_there_when_it_begins(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger, gate=True)) as runtime, database.client() as client:
        await runtime.ref(DESK).send(Pay())
        await ledger.opened.begun.wait()
        assert await client.answer(ledger.tokens[0], "paid") == "accepted"
        ledger.opened.opened.set()
        await settled()
        assert ledger.answers == ["paid"]


class Interloper(WrappedDriver):
    """Answers a callback just before, or just after, its owner first looks for the answer. Nobody is told of it."""

    def __init__(self, inner: Driver, tokens: list[str], *, before: bool) -> None:
        super().__init__(inner)
        self.tokens, self.before, self.done = tokens, before, False

    async def read(self, query: Query[Any]) -> Any:
        if not isinstance(query, ReadCallback) or self.done:
            return await self.inner.read(query)
        self.done = True
        if self.before:
            await self._answer()
            return await self.inner.read(query)
        found = await self.inner.read(query)
        await self._answer()
        return found

    async def _answer(self) -> None:
        parts = split_token(self.tokens[0])
        assert parts is not None
        data = Payloads().encode_value("paid")
        answer = AnswerCallback(callback_id=parts[0], secret_digest=parts[1], answer=data, digest=digest_of(data))
        await self.inner.apply(new_id(), [answer])


@pytest.mark.parametrize("before", [True, False])
async def test_k05_an_answer_that_comes_amid_the_beginning_of_the_wait_is_not_missed(
    database: Shared, before: bool
) -> None:
    ledger = Ledger()
    source = database.source(driver=lambda inner: Interloper(inner, ledger.tokens, before=before))
    async with database.runtime(cashier(ledger), source=source) as runtime:
        assert await runtime.ref(DESK).ask(Pay(timeout=100.0), timeout=None) == "paid"
        assert anyio.current_time() <= 100.01


async def test_answers_are_any_values_that_can_be_stored(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger)) as runtime, database.client() as client:
        for number, value in enumerate(({"sum": 3, "of": ["a", None]}, Note("attrs"), None)):
            await runtime.ref(DESK).send(Pay(), message_id=f"m{number}")
            await until(lambda number=number: len(ledger.tokens) == number + 1)  # type: ignore[misc]
            await client.answer(ledger.tokens[-1], value)
            await until(lambda number=number: len(ledger.answers) == number + 1)  # type: ignore[misc]
            assert ledger.answers[-1] == value


# ---------------------------------------------------------------------------------------------------- only once


async def test_a_second_answer_is_a_duplicate_or_a_conflict_and_changes_nothing(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger, gate=True)) as runtime, database.client() as client:
        await runtime.ref(DESK).send(Pay())
        await ledger.opened.begun.wait()
        told = [await client.answer(ledger.tokens[0], value) for value in ("paid", "paid", "not paid")]
        assert told == ["accepted", "duplicate", "conflict"]
        ledger.opened.opened.set()
        await settled()
        assert ledger.answers == ["paid"]
        assert await client.answer(ledger.tokens[0], "paid") == "duplicate"


async def test_a_token_that_was_changed_opens_nothing_and_tells_nothing(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger)) as runtime, database.client() as client:
        await runtime.ref(DESK).send(Pay())
        await settled()
        (token,) = ledger.tokens
        callback_id = token.partition(".")[0]
        errors = [
            await raised(client.answer(wrong, "paid"))
            for wrong in (f"{token}x", f"{callback_id}.guessed", f"unknown.{token.partition('.')[2]}", "rubbish", "")
        ]
        assert {(type(error), str(error)) for error in errors} == {(gr.UnknownToken, "this token answers no callback")}
        assert ledger.answers == []


# --------------------------------------------------------------------------------------------------------- time


async def test_a_wait_ends_when_the_time_of_the_callback_has_passed(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger)) as runtime, database.client() as client:
        begun = anyio.current_time()
        with pytest.raises(gr.Rejected, match=r"'payment' of 'service/desk' did not come within 90 s"):
            await runtime.ref(DESK).ask(Pay(timeout=90.0), timeout=None)
        assert anyio.current_time() == pytest.approx(begun + 90.0, abs=0.1)
        assert await client.answer(ledger.tokens[0], "paid") == "late"


async def test_a_callback_without_an_end_is_waited_for_however_long(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger), source=database.source(lease=1e9)) as runtime:
        await runtime.ref(DESK).send(Pay())
        await anyio.sleep(5 * 3600)
        async with database.client() as client:
            assert await client.answer(ledger.tokens[0], "paid") == "accepted"
        await until(lambda: ledger.answers == ["paid"])


async def test_a_callback_whose_owner_is_not_there_expires_all_the_same(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger, gate=True)) as runtime:
        await runtime.ref(DESK).send(Pay(timeout=50.0))
        await ledger.opened.begun.wait()
    database.time.pass_time(60)
    async with database.client() as client:
        assert await client.answer(ledger.tokens[0], "paid") == "late"
    async with database.runtime(source=database.source(sweep=1.0)):
        await anyio.sleep(2)
        async with database.open() as store:
            record = await store.read(ReadCallback(callback_id=ledger.tokens[0].partition(".")[0]))
            assert record is not None
            assert record.status is CallbackStatus.EXPIRED


# ------------------------------------------------------------------------------------------------ redeliveries


@pytest.mark.parametrize("kind", [Pay, PayBeside])
async def test_a_handler_that_runs_again_gets_the_answer_that_came_before(database: Shared, kind: type[Pay]) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger)) as runtime, database.client() as client:
        await runtime.ref(DESK).send(kind(crashes=2), message_id="m1")
        await settled()
        await client.answer(ledger.tokens[0], "paid")
        await until(lambda: len(ledger.answers) == 3)
        assert await runtime.ref(DESK).ask(kind(crashes=2), message_id="m1") == "paid"
    assert ledger.answers == ["paid"] * 3
    assert len(set(ledger.tokens)) == 3  # each run was given a token of its own


async def test_a_token_stays_good_when_the_handler_that_gave_it_away_has_died(database: Shared) -> None:
    ledger = Ledger()
    async with database.doomed(f"after CreateCallback {DESK} ~2 payment", cashier(ledger)) as runtime:
        await runtime.ref(DESK).send(Pay(), message_id="m1")
        await settled()
    async with database.client() as client:
        assert await client.answer(ledger.tokens[0], "paid") == "accepted"
    async with database.runtime(cashier(ledger)) as runtime:
        assert await runtime.ref(DESK).ask(Pay(), message_id="m1") == "paid"


async def test_each_message_has_callbacks_of_its_own(database: Shared) -> None:
    ledger = Ledger()
    async with database.runtime(cashier(ledger)) as runtime, database.client() as client:
        for message_id in ("m1", "m2", "m3"):
            await runtime.ref(DESK).send(PayBeside(), message_id=message_id)
        await until(lambda: len(ledger.tokens) == 3)
        assert len({token.partition(".")[0] for token in ledger.tokens}) == 3
        for number, token in enumerate(ledger.tokens):
            await client.answer(token, number)
        await until(lambda: len(ledger.answers) == 3)
    assert sorted(ledger.answers) == [0, 1, 2]


# -------------------------------------------------------------------------------------------------------- misuse


@frozen
class Attempt(gr.Message[str]):
    """Try to open a callback; the reply is what came of it."""


class Asker(gr.Actor):
    """Opens a callback as it is told."""

    def __init__(self, name: str = "x", timeout: float | None = None) -> None:
        self.name, self.timeout = name, timeout

    @gr.handles
    async def attempt(self, message: Attempt) -> str:
        error = await raised(self.context.callback(self.name, timeout=self.timeout))
        return f"{type(error).__name__}: {error}"


async def test_a_callback_needs_a_persistent_mailbox(database: Shared) -> None:
    async with database.runtime(gr.Child("desk", Asker)) as runtime:
        assert "PersistentMailbox" in await runtime.ref(DESK).ask(Attempt())


@pytest.mark.parametrize(("name", "timeout"), [("", None), (" ", 1.0), ("x", 0.0), ("x", -1.0), ("x", float("nan"))])
async def test_a_callback_has_a_name_and_a_time_above_zero(database: Shared, name: str, timeout: float | None) -> None:
    child = gr.Child("desk", Asker, name, timeout, mailbox=gr.PersistentMailbox())
    async with database.runtime(child) as runtime:
        assert (await runtime.ref(DESK).ask(Attempt())).startswith("ValueError")


async def test_a_callback_may_be_opened_outside_of_a_handler(database: Shared) -> None:
    class Early(gr.Actor):
        def __init__(self, tokens: list[str], answers: list[object]) -> None:
            self.tokens, self.answers = tokens, answers

        async def on_start(self) -> None:
            self.context.nursery.start_soon(self.wait)

        async def wait(self) -> None:
            callback = await self.context.callback("early", timeout=None)
            self.tokens.append(callback.token)
            self.answers.append(await callback.wait())

    tokens: list[str] = []
    answers: list[object] = []
    child = gr.Child("desk", Early, tokens, answers, mailbox=gr.PersistentMailbox())
    async with database.runtime(child), database.client() as client:
        await settled()
        await client.answer(tokens[0], 1)
        await until(lambda: answers == [1])
