"""Scenarios: each brings a small piece of durable work to its end, whatever it finds in the store, and checks what came of it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio

import greenroom as gr
from tests.crashes_simulated.actors import (
    Account,
    Accountant,
    AskOutside,
    Clerk,
    Clockwork,
    Deposit,
    Desk,
    Job,
    Look,
    Round,
    Show,
    Teller,
    Ticks,
    Transfer,
    Watch,
    Wind,
    Write,
    Writer,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.testing import Life


def runtime_of(life: Life, *children: Any, **options: Any) -> gr.Runtime:
    return gr.Runtime(gr.Supervisor("shop", *children, intensity=100), store=life.store, **options)


async def until(condition: Callable[[], Awaitable[bool]], *, every: float = 1.0) -> None:
    """Wait, in virtual time, for what comes by itself. Each look that is a transition is a point to be killed at."""
    while not await condition():  # noqa: ASYNC110 - it is looked up in the store, which no event tells of
        await anyio.sleep(every)


async def account_of(runtime: gr.Runtime, path: str) -> Account:
    return await runtime.ref(path).ask(Show(), timeout=None)


async def money_moves_between_two_accounts(life: Life) -> None:
    """A durable actor's message to another one leaves with its state, or not at all (R25)."""
    async with runtime_of(life, gr.Child("ann", Teller), gr.Child("bob", Teller)) as runtime:
        ann = runtime.ref("shop/ann")
        await ann.send(Deposit("salary", 100), message_id="salary")
        await ann.send(Transfer("rent", 60, "shop/bob"), message_id="rent")
        assert await ann.ask(Transfer("loan", 10, "shop/bob"), message_id="loan", timeout=None) == 30
        assert await account_of(runtime, "shop/ann") == Account(30, ("salary", "rent", "loan"))

        async def has_come() -> bool:
            return (await account_of(runtime, "shop/bob")).cents == 70

        await until(has_come)
        assert await account_of(runtime, "shop/bob") == Account(70, ("rent", "loan"))


async def accounts_of_a_pool_are_opened_as_they_are_needed(life: Life) -> None:
    """A pool's actors are made for the messages that come, dropped when they are idle, and made again."""
    async with runtime_of(life, gr.DurableActors("accounts", Teller, max_resident=1, idle=10.0)) as runtime:
        for name in ("ann", "bob"):
            await runtime.ref(f"shop/accounts/{name}").send(Deposit("salary", 50), message_id="salary")
        await runtime.ref("shop/accounts/ann").send(Transfer("rent", 20, "shop/accounts/bob"), message_id="rent")
        await anyio.sleep(60.0)  # long enough to have been dropped

        async def has_come() -> bool:
            return (await account_of(runtime, "shop/accounts/bob")).cents == 70

        await until(has_come)
        assert (await account_of(runtime, "shop/accounts/ann")).cents == 30


async def what_a_clerk_was_given_is_done(life: Life) -> None:
    """A persistent mailbox redelivers what was accepted, and keeps the reply of what was handled (R22, R25)."""
    done: Counter[str] = life.kept.setdefault("done", Counter())
    replies: dict[str, str] = life.kept.setdefault("replies", {})
    clerk = gr.Child("clerk", Clerk, done, {"b": 1}, mailbox=gr.PersistentMailbox(capacity=10))
    async with runtime_of(life, clerk) as runtime:
        for name in ("a", "b", "c"):
            reply = await runtime.ref("shop/clerk").ask(Job(name), message_id=name, timeout=None)
            if life.alive:
                assert replies.setdefault(name, reply) == reply
    assert all(done[name] >= 1 for name in ("a", "b", "c"))


async def a_job_that_crashes_the_clerk_is_set_aside(life: Life) -> None:
    """A message that was delivered too often becomes a dead letter; others are handled, and an operator requeues it (R22)."""
    done: Counter[str] = life.kept.setdefault("done", Counter())
    clerk = gr.Child("clerk", Clerk, done, {"bad": 4}, mailbox=gr.PersistentMailbox(max_deliveries=3))
    async with runtime_of(life, clerk) as runtime, gr.Client(life.store) as client:
        await client.send("shop/clerk", Job("bad"), message_id="bad")
        assert "good" in await runtime.ref("shop/clerk").ask(Job("good"), message_id="good", timeout=None)

        async def is_over() -> bool:
            info = await client.message("shop/clerk", "bad")
            assert info is not None
            if info.status == "dead":
                await client.requeue("shop/clerk", "bad")
            return info.status == "handled"

        await until(is_over, every=60.0)
        assert await runtime.ref("shop/clerk").ask(Job("bad"), message_id="bad", timeout=None) is not None
    assert done["bad"] >= 5


async def a_watch_ticks_by_timers_that_outlive_it(life: Life) -> None:
    """Durable timers are set with the handler's commit, and each comes once."""
    async with runtime_of(life, gr.Child("watch", Clockwork)) as runtime:
        watch = runtime.ref("shop/watch")
        await watch.send(Wind(3), message_id="wind")

        async def has_run_down() -> bool:
            return (await watch.ask(Ticks(), timeout=None)).ticked >= 3

        await until(has_run_down, every=200.0)
        await anyio.sleep(300.0)
        assert await watch.ask(Ticks(), timeout=None) == Watch(3, 3)


async def a_delayed_message_comes_once_and_not_early(life: Life) -> None:
    """`deliver_at` is kept over lives."""
    async with runtime_of(life, gr.Child("ann", Teller)) as runtime, gr.Client(life.store) as client:
        due = life.kept.setdefault("due", await client.now() + timedelta(minutes=5))
        ann = runtime.ref("shop/ann")
        await ann.send(Deposit("late", 5), message_id="late", deliver_at=due)
        if (await account_of(runtime, "shop/ann")).booked:
            assert await client.now() >= due

        async def has_come() -> bool:
            return bool((await account_of(runtime, "shop/ann")).booked)

        await until(has_come, every=150.0)
        assert await client.now() >= due
        assert await account_of(runtime, "shop/ann") == Account(5, ("late",))


async def letters_go_out_at_least_once_each_under_one_name(life: Life) -> None:
    """The outbox relay publishes what was committed, and the destination removes duplicates by their identity (C20)."""
    posted: dict[str, str] = life.kept.setdefault("posted", {})

    async def post(letter: Any) -> None:
        if life.alive:
            assert posted.setdefault(letter.message_id, letter.message.text) == letter.message.text

    async with runtime_of(life, gr.Child("writer", Writer), destinations={"post": post}) as runtime:
        for text in ("hello", "goodbye"):
            await runtime.ref("shop/writer").send(Write(text), message_id=text)

        async def are_out() -> bool:
            return len(posted) == 2

        await until(are_out)
        assert await runtime.ref("shop/writer").ask(Look(), timeout=None) == Desk(2)
    assert sorted(posted.values()) == ["goodbye", "hello"]


async def an_answer_from_outside_is_given_once(life: Life) -> None:
    """A callback's answer comes before or after somebody waits for it, to whichever token was handed out (K05)."""
    tokens: list[str] = life.kept.setdefault("tokens", [])
    given: list[str] = life.kept.setdefault("given", [])

    def tell(token: str) -> None:
        if life.alive:
            tokens.append(token)

    async with runtime_of(life, gr.Child("writer", Writer, tell)) as runtime, gr.Client(life.store) as client:
        await runtime.ref("shop/writer").send(AskOutside(), message_id="ask")

        async def are_known() -> bool:
            return bool(tokens)

        await until(are_known)
        given.append(f"answer {len(given)}")
        await client.answer(tokens[0], given[-1])
        answer = await runtime.ref("shop/writer").ask(AskOutside(), message_id="ask", timeout=None)
        assert answer in given
        assert await runtime.ref("shop/writer").ask(Look(), timeout=None) == Desk(answers=(answer,))


async def messages_without_room_are_held_and_brought_in_order(life: Life) -> None:
    """A handler's own messages over the recipient's capacity wait in its outbox, in order (R25)."""
    tellers = (
        gr.Child("ann", Teller),
        gr.Child("bob", Teller, mailbox=gr.PersistentMailbox(capacity=1)),
    )
    names = tuple(f"rent {number}" for number in range(3))
    async with runtime_of(life, *tellers) as runtime:
        for name in names:
            await runtime.ref("shop/ann").send(Transfer(name, 10, "shop/bob"), message_id=name)

        async def have_come() -> bool:
            try:
                return (await account_of(runtime, "shop/bob")).cents == 30
            except gr.MailboxFull:
                return False

        await until(have_come)
        assert await account_of(runtime, "shop/bob") == Account(30, names)
        assert await account_of(runtime, "shop/ann") == Account(-30, names)


async def questions_in_a_handler_are_asked_once_for_the_record(life: Life) -> None:
    """A handler that runs again repeats its questions, and gets the replies that were given before (R25)."""
    children = (gr.Child("accountant", Accountant), gr.Child("ann", Teller), gr.Child("bob", Teller))
    async with runtime_of(life, *children) as runtime:
        accountant = runtime.ref("shop/accountant")
        tellers = ("shop/ann", "shop/bob")
        assert await accountant.ask(Round(tellers, 4), message_id="first", timeout=None) == 8
        for path in tellers:
            assert await account_of(runtime, path) == Account(4, ("round",))


async def a_second_runtime_takes_over_from_one_that_stops(life: Life) -> None:
    """Two runtimes in one execution's life: an address has one owner at a time, and standby takes over (I4)."""
    second_is_up, first_is_done = anyio.Event(), anyio.Event()
    tree = ("ann", Teller)
    async with anyio.create_task_group() as group:

        async def second() -> None:
            await first_is_done.wait()
            async with runtime_of(life, gr.Child(*tree)) as runtime:
                second_is_up.set()
                ask = runtime.ref("shop/ann").ask(Deposit("second", 2), message_id="second", timeout=None)
                await ask
                assert await account_of(runtime, "shop/ann") == Account(3, ("first", "second"))

        group.start_soon(second)
        async with runtime_of(life, gr.Child(*tree)) as runtime:
            await runtime.ref("shop/ann").ask(Deposit("first", 1), message_id="first", timeout=None)
            first_is_done.set()


SCENARIOS: Final = (
    money_moves_between_two_accounts,
    accounts_of_a_pool_are_opened_as_they_are_needed,
    what_a_clerk_was_given_is_done,
    a_job_that_crashes_the_clerk_is_set_aside,
    a_watch_ticks_by_timers_that_outlive_it,
    a_delayed_message_comes_once_and_not_early,
    letters_go_out_at_least_once_each_under_one_name,
    an_answer_from_outside_is_given_once,
    messages_without_room_are_held_and_brought_in_order,
    questions_in_a_handler_are_asked_once_for_the_record,
    a_second_runtime_takes_over_from_one_that_stops,
)
