"""Whatever is sent, stashed, refused and crashed: every message is handled once, in order, and every asker hears of it."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import hypothesis.strategies as st
from hypothesis import given, settings

import greenroom as gr
from tests.actors.helpers import Boom, idle, tree


@attrs.frozen(eq=False)
class Command(gr.Message[int]):
    number: int
    what: str
    count: int | None = None
    """How many to unstash."""


@attrs.frozen(eq=False)
class Hold(gr.Message[None]):
    """Keeps the actor busy, so that all that is sent meanwhile queues."""

    until: anyio.Event


commands = st.lists(
    st.builds(
        lambda what, asked, count: (what, asked, count),
        st.sampled_from(["work", "work", "stash", "stash", "unstash", "refuse", "crash", "stash and crash"]),
        st.booleans(),
        st.one_of(st.none(), st.integers(0, 3)),
    ),
    max_size=25,
)


class Obeys(gr.Actor):
    """Logs (incarnation, number) of each command it has handled to the end. What was stashed once is worked off the second time."""

    def __init__(self, log: list[tuple[int, int]], stashed: set[int]) -> None:
        self.log, self.stashed = log, stashed

    @gr.handles
    async def hold(self, message: Hold) -> None:
        await message.until.wait()

    @gr.handles
    async def command(self, message: Command) -> int:
        if message.what.startswith("stash") and message.number not in self.stashed:
            self.stashed.add(message.number)
            self.context.stash(message)
            if message.what == "stash and crash":
                raise Boom
            return -1
        if message.what == "refuse":
            raise gr.Rejected
        if message.what == "crash":
            raise Boom
        self.log.append((self.context.incarnation, message.number))
        if message.what == "unstash":
            self.context.unstash(message.count)
        return message.number


class Model:
    """The same, as plain lists."""

    def __init__(self, sent: list[Command]) -> None:
        self.log: list[tuple[int, int]] = []
        self.outcomes: dict[int, object] = {}
        incarnation, queue, stash, stashed = 1, list(sent), list[Command](), set[int]()
        while queue:
            command = queue.pop(0)
            if command.what == "stash" and command.number not in stashed:
                stashed.add(command.number)
                stash.append(command)
            elif command.what == "refuse":
                self.outcomes[command.number] = gr.Rejected
            elif command.what in ("crash", "stash and crash"):
                self.outcomes[command.number] = gr.ActorCrashed
                incarnation, queue, stash = incarnation + 1, stash + queue, []
            else:
                self.log.append((incarnation, command.number))
                self.outcomes[command.number] = command.number
                if command.what == "unstash":
                    count = len(stash) if command.count is None else command.count
                    queue, stash = stash[:count] + queue, stash[count:]
        for command in stash:
            self.outcomes[command.number] = gr.ActorStopped
        self.left = [command.number for command in stash]


@settings(max_examples=60)
@given(commands)
async def test_p18_messages_are_handled_once_and_in_order_over_restarts_and_stashes(
    chosen: list[tuple[str, bool, int | None]],
) -> None:
    sent = [Command(number, what, count) for number, (what, _, count) in enumerate(chosen)]
    asked = {number for number, (_, ask, _) in enumerate(chosen) if ask}
    log: list[tuple[int, int]] = []
    outcomes: dict[int, Any] = {}
    async with tree(gr.Child("a", Obeys, log, set[int]())) as runtime, anyio.create_task_group() as group:
        ref, letters = runtime.ref("app/a"), runtime.dead_letters()
        held = anyio.Event()

        async def ask(command: Command) -> None:
            try:
                outcomes[command.number] = await ref.ask(command, timeout=None)
            except (gr.GreenroomError, gr.Rejected) as error:
                outcomes[command.number] = type(error)

        ref.tell(Hold(held))
        for command in sent:
            if command.number in asked:
                group.start_soon(ask, command)
                await idle()
            else:
                ref.tell(command)
        held.set()
        await idle()
        await runtime.ref("app").terminate_child("a")
        await idle()
        model = Model(sent)
        assert log == model.log
        assert outcomes == {number: model.outcomes[number] for number in asked}
        dead = [letter.message.number for letter in letters.pending() if letter.reason is gr.DeadLetterReason.ENDED]  # type: ignore[attr-defined]
        assert dead == [number for number in model.left if number not in asked]
