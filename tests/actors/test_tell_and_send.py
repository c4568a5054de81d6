"""`tell`, `send`, dead letters, and what a bounded mailbox does with a message too many (P18, P19)."""

from __future__ import annotations

import logging

import pytest

import greenroom as gr
from tests.actors.helpers import Do, Fail, Note, Puppet, Unknown, idle, tree


async def test_told_messages_are_handled_in_their_order() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        for number in range(1000):
            runtime.ref("app/a").tell(Note(number))
        await idle()
        assert log == list(range(1000))


async def test_messages_between_one_pair_keep_their_order_whichever_way_they_are_sent() -> None:
    log: list[object] = []
    async with tree(gr.Child("a", Puppet, log, mailbox=gr.Mailbox(capacity=3))) as runtime:
        ref = runtime.ref("app/a")
        for number in range(0, 90, 3):
            ref.tell(Note(number))
            await ref.send(Note(number + 1))
            await ref.ask(Note(number + 2))
        assert log == list(range(90))


async def test_a_tell_of_no_message_is_refused() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        for call in (runtime.ref("app/a").tell, runtime.ref("app").tell):
            with pytest.raises(gr.NotAMessage, match="a dict is not a message"):
                call({"secret": 1})  # type: ignore[arg-type]  # under test
        with pytest.raises(gr.NotAMessage, match="a dict is not a message"):
            await runtime.ref("app/a").send({"secret": 1})  # type: ignore[arg-type]  # under test


# ---------------------------------------------------------------------------------------------------- dead letters


async def test_p19_a_tell_to_an_ended_actor_is_a_dead_letter_with_recipient_and_reason() -> None:
    async with tree(gr.Child("a", Puppet, restart="transient")) as runtime:
        runtime.ref("app/a").tell(Fail(gr.Stop()))
        await idle()
        letters = runtime.dead_letters()
        runtime.ref("app/a").tell(Note("x"))
        assert letters.pending() == [gr.DeadLetter(Note("x"), "app/a", None, gr.DeadLetterReason.ENDED)]


async def test_p22_a_dead_letter_names_the_actor_that_sent_it() -> None:
    async def send_on(self: Puppet) -> None:
        self.context.runtime.ref("app/gone").tell(Note("by tell"))
        await self.context.runtime.ref("app/gone").send(Note("by send"))

    async with tree(gr.Child("a", Puppet), gr.Child("gone", Puppet, restart="transient")) as runtime:
        runtime.ref("app/gone").tell(Fail(gr.Stop()))
        await idle()
        letters = runtime.dead_letters()
        await runtime.ref("app/a").ask(Do(send_on))
        assert [letter.sender for letter in letters.pending()] == ["app/a", "app/a"]


async def test_p22_what_an_actors_nursery_sends_is_sent_by_the_actor() -> None:
    async def send_on(self: Puppet) -> None:
        async def tell() -> None:
            self.context.runtime.ref("app").tell(Note("x"))

        self.context.nursery.start_soon(tell)

    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        await runtime.ref("app/a").ask(Do(send_on))
        await idle()
        assert [(letter.sender, letter.recipient) for letter in letters.pending()] == [("app/a", "app")]


async def test_a_told_message_without_handler_is_a_dead_letter() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        runtime.ref("app/a").tell(Unknown())
        await idle()
        assert [letter.reason for letter in letters.pending()] == [gr.DeadLetterReason.UNHANDLED]
        assert runtime.ref("app/a").incarnation == 1


async def test_dead_letters_are_counted_by_recipient_and_reason_though_nobody_listens() -> None:
    async with tree(gr.Child("a", Puppet, mailbox=gr.Mailbox(capacity=1, overflow="drop_new"))) as runtime:
        for _ in range(3):
            runtime.ref("app/a").tell(Unknown())
        runtime.ref("app").tell(Unknown())
        await idle()
        assert runtime.dead_letter_counts() == {
            ("app/a", gr.DeadLetterReason.DROPPED): 2,
            ("app/a", gr.DeadLetterReason.UNHANDLED): 1,
            ("app", gr.DeadLetterReason.UNHANDLED): 1,
        }


async def test_the_stream_of_dead_letters_ends_with_the_runtime_after_what_it_holds() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters()
        runtime.ref("app/a").tell(Unknown("last"))
        await idle()
    assert [letter.message async for letter in letters] == [Unknown("last")]


async def test_a_reader_of_dead_letters_that_lags_misses_the_oldest_and_can_tell() -> None:
    async with tree(gr.Child("a", Puppet)) as runtime:
        letters = runtime.dead_letters(buffer=2)
        for number in range(5):
            runtime.ref("app/a").tell(Unknown(str(number)))
        await idle()
        assert [letter.message for letter in letters.pending()] == [Unknown("3"), Unknown("4")]
        assert letters.missed == 3


async def test_p29_the_log_of_dead_letters_shows_types_and_not_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="greenroom")
    async with tree(gr.Child("a", Puppet)) as runtime:
        runtime.ref("app/a").tell(Unknown("the secret"))
        await idle()
    assert "dead letter: Unknown to app/a from outside (unhandled)" in caplog.text
    assert "the secret" not in caplog.text
