"""OTP b.16-23: what becomes of a child that ends by itself, by its restart type and how it ended."""

from __future__ import annotations

from typing import Literal, TypeAlias

import anyio
import attrs
import pytest

import greenroom as gr
from tests.conformance.probes import Boom, Crash, End, Hold, Log, Touch, below_top, exits, reports, settle, states

How: TypeAlias = Literal["normal", "shutdown", "detail", "error", "killed"]
"""NORMAL, SHUTDOWN, SHUTDOWN(detail), ERROR, KILLED."""
Strategy: TypeAlias = Literal["one_for_all", "rest_for_one"]

CLEAN: tuple[How, ...] = ("normal", "shutdown", "detail")
FAULTY: tuple[How, ...] = ("error", "killed")
SHUTDOWN_TIME = 1.0


async def end(ref: gr.Ref, how: How) -> None:
    """Make a probe end by itself, and see it through; one that ends KILLED takes its shutdown time."""
    ref.tell(Crash() if how == "error" else End(how))
    await anyio.sleep(2 * SHUTDOWN_TIME)


def tree(log: Log, restart: str, *, intensity: int = 5) -> gr.Supervisor:
    return gr.Supervisor("sup", log.child("a", restart=restart, shutdown=SHUTDOWN_TIME), intensity=intensity)


@pytest.mark.parametrize("how", [*CLEAN, *FAULTY])
async def test_each_end_of_a_probe_has_the_exit_that_the_tables_name(how: How) -> None:
    log = Log()
    async with gr.Runtime(tree(log, "temporary")) as runtime:
        events = runtime.events()
        await end(runtime.ref("sup/a"), how)
        (exit,) = exits(events, "sup/a")
        kinds = {"normal": "normal", "shutdown": "shutdown", "detail": "shutdown", "error": "error", "killed": "killed"}
        assert exit.kind == kinds[how]
        assert (exit.cause is not None) == (how in ("detail", "error"))


async def test_otp_016_a_permanent_child_that_ends_normally_is_restarted() -> None:
    log = Log()
    async with gr.Runtime(tree(log, "permanent")) as runtime:
        ref = runtime.ref("sup/a")
        assert ref.incarnation == 1
        await end(ref, "normal")
        assert log.take() == ["start a", "end a", "start a"]
        assert ref.incarnation == 2
        assert await states(runtime.ref("sup")) == {"a": "running"}


@pytest.mark.parametrize("how", ["shutdown", "detail"])
async def test_otp_017_a_permanent_child_that_shuts_itself_down_is_restarted(how: How) -> None:
    log = Log()
    async with gr.Runtime(tree(log, "permanent")) as runtime:
        await end(runtime.ref("sup/a"), how)
        assert log.take() == ["start a", "end a", "start a"]


@pytest.mark.parametrize("how", CLEAN)
async def test_otp_017_and_it_is_counted_so_that_without_intensity_the_supervisor_gives_up(how: How) -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), restart="temporary", intensity=0)
    async with below_top(sup) as runtime:
        events = runtime.events()
        await end(runtime.ref("top/sup/a"), how)
        assert log.take() == ["start a", "end a"]
        assert [exit.kind for exit in exits(events, "top/sup")] == ["shutdown"]


async def test_otp_018_a_permanent_child_that_crashes_is_restarted() -> None:
    log = Log()
    async with gr.Runtime(tree(log, "permanent")) as runtime:
        await end(runtime.ref("sup/a"), "error")
        assert log.take() == ["start a", "die a", "start a"]


@pytest.mark.parametrize("how", CLEAN)
async def test_otp_019_a_transient_child_that_ends_in_good_order_is_kept_down(how: How) -> None:
    log = Log()
    async with gr.Runtime(tree(log, "transient", intensity=0)) as runtime:
        sup, ref = runtime.ref("sup"), runtime.ref("sup/a")
        await end(ref, how)
        assert await states(sup) == {"a": "down"}
        assert await sup.restart_child("a") is ref
        assert await states(sup) == {"a": "running"}
        assert ref.incarnation == 2


@pytest.mark.parametrize("how", FAULTY)
async def test_otp_020_a_transient_child_that_ends_by_a_fault_is_restarted(how: How) -> None:
    log = Log()
    async with gr.Runtime(tree(log, "transient")) as runtime:
        await end(runtime.ref("sup/a"), how)
        assert log.start_calls("a") == 2
        assert await states(runtime.ref("sup")) == {"a": "running"}


@pytest.mark.parametrize("how", [*CLEAN, *FAULTY])
async def test_otp_021_a_temporary_child_is_forgotten_whatever_ended_it(how: How) -> None:
    log = Log()
    async with gr.Runtime(tree(log, "temporary", intensity=0)) as runtime:
        sup = runtime.ref("sup")
        await end(runtime.ref("sup/a"), how)
        assert await states(sup) == {}
        assert log.start_calls("a") == 1
        again = await sup.start_child(log.child("a"))
        assert again.incarnation == 1
        assert await states(sup) == {"a": "running"}


async def test_otp_023_a_restarted_child_has_its_arguments_and_address_and_queue_but_not_its_state() -> None:
    """Different on purpose: OTP's queued messages die with the process; here only the message in hand is lost."""
    log = Log()

    @attrs.frozen
    class Note(gr.Message[None]):
        text: str

    class Book(gr.Actor):
        def __init__(self, log: Log, title: str) -> None:
            self.log, self.title = log, title
            self.notes: list[str] = []

        @gr.handles
        async def note(self, message: Note) -> None:
            self.notes.append(message.text)
            self.log.add(f"{self.title}:", ",".join(self.notes))
            if message.text == "bad":
                raise Boom

    async with gr.Runtime(gr.Supervisor("sup", gr.Child("a", Book, log, "diary"))) as runtime:
        ref = runtime.ref("sup/a")
        for text in ("one", "bad", "two", "three"):
            ref.tell(Note(text))
        await settle()
        assert log.take() == ["diary: one", "diary: one,bad", "diary: two", "diary: two,three"]
        assert ref.incarnation == 2
        assert runtime.dead_letter_counts() == {}


async def test_otp_023_the_asker_of_the_message_in_hand_gets_the_crash_and_the_queued_one_its_answer() -> None:
    log = Log()
    async with gr.Runtime(tree(log, "permanent")) as runtime, anyio.create_task_group() as group:
        ref = runtime.ref("sup/a")
        with pytest.raises(gr.ActorCrashed) as crash:
            group.start_soon(ask_behind, ref, log)
            await ref.ask(Crash())
        assert isinstance(crash.value.__cause__, Boom)
        assert crash.value.incarnation == 1
        await settle()
        assert log.take() == ["start a", "die a", "start a", "answer 1"]


async def ask_behind(ref: gr.Ref, log: Log) -> None:
    log.add("answer", str(await ref.ask(Touch())))


# -------------------------------------------------------------------------------------------------- the whole table


def is_restarted(restart: str, how: How) -> bool:
    return restart == "permanent" or (restart == "transient" and how in FAULTY)


@pytest.mark.parametrize("how", [*CLEAN, *FAULTY])
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_a_fault_report_is_made_of_every_permanent_end_and_of_faults_of_the_others(
    restart: str, how: How
) -> None:
    log = Log()
    async with gr.Runtime(tree(log, restart)) as runtime:
        events = runtime.events()
        await end(runtime.ref("sup/a"), how)
        found = reports(events)
        if restart == "permanent" or how in FAULTY:
            (report,) = found
            assert (report.context, report.path, report.offender.path) == ("child_terminated", "sup", "sup/a")
            assert report.offender.incarnation == 1
        else:
            assert found == []


@pytest.mark.parametrize("how", [*CLEAN, *FAULTY])
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_siblings_are_touched_exactly_when_the_child_is_restarted(
    strategy: Strategy, restart: str, how: How
) -> None:
    log = Log()
    children = (log.child("a", restart=restart, shutdown=SHUTDOWN_TIME), log.child("b"))
    async with gr.Runtime(gr.Supervisor("sup", *children, strategy=strategy)) as runtime:
        await end(runtime.ref("sup/a"), how)
        assert (runtime.ref("sup/b").incarnation == 2) == is_restarted(restart, how)


# ------------------------------------------------------------------------------------------------------------ groups


async def test_several_errors_out_of_one_child_are_one_end_and_one_restart() -> None:
    log = Log()
    sup = gr.Supervisor("sup", log.child("a"), intensity=1)
    async with gr.Runtime(sup) as runtime:
        events = runtime.events()
        runtime.ref("sup/a").tell(Crash(ExceptionGroup("two", [Boom("1"), Boom("2")])))
        await settle()
        (exit,) = exits(events, "sup/a")
        assert isinstance(exit.cause, ExceptionGroup)
        assert [str(one) for one in exit.cause.exceptions] == ["1", "2"]
        assert log.take() == ["start a", "die a", "start a"]


async def test_a_group_of_one_is_unwrapped() -> None:
    log = Log()
    async with gr.Runtime(tree(log, "permanent")) as runtime:
        events = runtime.events()
        runtime.ref("sup/a").tell(Crash(ExceptionGroup("one", [Boom("1")])))
        await settle()
        (exit,) = exits(events, "sup/a")
        assert isinstance(exit.cause, Boom)


async def test_a_child_that_dies_with_messages_queued_for_a_temporary_one_leaves_dead_letters() -> None:
    log = Log()
    async with gr.Runtime(tree(log, "temporary")) as runtime:
        ref = runtime.ref("sup/a")
        gate = anyio.Event()
        ref.tell(Hold(gate))
        ref.tell(Crash())
        ref.tell(Touch())
        gate.set()
        await settle()
        assert runtime.dead_letter_counts() == {("sup/a", gr.DeadLetterReason.ENDED): 1}


@pytest.mark.parametrize("order", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
async def test_p15_an_order_to_exit_ends_the_tree_and_the_child_it_came_out_of_is_not_restarted(
    order: BaseException,
) -> None:
    log = Log()
    log.next_stops("slow", 2.0)
    inner = gr.Supervisor("inner", log.child("a"))
    with pytest.raises(type(order)):
        async with gr.Runtime(gr.Supervisor("sup", inner, log.child("slow"))) as runtime:
            log.take()
            runtime.ref("sup/inner/a").tell(Crash(order))
            await anyio.sleep_forever()
    assert log.take() == ["die a", "stop slow"]
