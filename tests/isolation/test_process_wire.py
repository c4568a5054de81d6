"""What process children and workers say to each other: frames, parcels, and how the end of a process is told."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.actors.processes.oom import OutOfMemory, counter_files, kills_counted
from greenroom.actors.processes.parcels import Parcels
from greenroom.actors.processes.wire import Frame, Kind, Splitter
from greenroom.actors.processes.worker_process import WorkerEnd
from greenroom.actors.real_time import RealTime
from greenroom.codec import wire
from greenroom.testing import VirtualClock
from tests.isolation.workers import TooSmall

# ------------------------------------------------------------------------------------------------------------ frames

frames = st.lists(
    st.builds(Frame, st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.binary(max_size=40)), max_size=8
)


@given(frames, st.lists(st.integers(1, 30), max_size=40))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(frame.pack() for frame in sent)
    splitter = Splitter()
    received: list[Frame] = []
    start = 0
    for length in [*cuts, len(stream)]:
        received += splitter.feed(stream[start : start + length])
        start += length
    assert received == sent


def test_frames_behind_one_that_was_taken_alone_are_still_there() -> None:
    first, second = Frame(Kind.TELL, 1, b"a"), Frame(Kind.ASK, 2, b"b")
    splitter = Splitter()
    arrived = splitter.feed(first.pack() + second.pack())
    assert next(arrived) == first
    arrived.close()
    assert list(splitter.feed(b"")) == [second]


def test_a_frame_of_an_unknown_kind_spoils_the_stream() -> None:
    with pytest.raises(ValueError, match="99"):
        list(Splitter().feed(b"\x00\x00\x00\x00" + bytes([99]) + bytes(8)))


# ----------------------------------------------------------------------------------------------------------- parcels


def no_ref(path: str, incarnation: int) -> Any:
    raise AssertionError("no ref was sent")


@pytest.fixture
def parcels() -> Parcels:
    return Parcels(no_ref)


@pytest.mark.parametrize(
    "error",
    [
        gr.Rejected("no", 1),
        gr.Rejected(),
        TooSmall(7),
        gr.Stop("done", shutdown=True),
        gr.Stop(),
        gr.Ignore(),
        gr.ActorStopped("a/b", "Do", "it has ended"),
        gr.AskTimeout("a/b", "Do", 1.5),
        gr.MailboxFull("a/b", 10, "Do"),
        gr.NotEncodable("Do", ("one", "two")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_words_of_ours_arrive_as_what_they_were(error: Exception, parcels: Parcels) -> None:
    arrived = parcels.unpack_error(parcels.pack_error(error))
    assert type(arrived) is type(error)
    assert (str(arrived), arrived.args, vars(arrived)) == (str(error), error.args, vars(error))


def test_the_cause_and_notes_of_a_word_of_ours_arrive_with_it(parcels: Parcels) -> None:
    error = gr.Rejected("no")
    error.__cause__ = ValueError("because")
    error.add_note("by the way")
    arrived = parcels.unpack_error(parcels.pack_error(error))
    assert (str(arrived.__cause__), arrived.__notes__) == ("ValueError: because", ["by the way"])


def test_every_other_exception_arrives_in_text(parcels: Parcels) -> None:
    arrived = parcels.unpack_error(parcels.pack_error(KeyError("k")))
    assert isinstance(arrived, gr.RemoteError)
    assert (arrived.type_name, arrived.arguments) == ("KeyError", ("'k'",))


def test_an_error_that_was_remote_already_arrives_as_it_was(parcels: Parcels) -> None:
    error = gr.RemoteError("ValueError", "text", trace="the trace")
    arrived = parcels.unpack_error(parcels.pack_error(error))
    assert isinstance(arrived, gr.RemoteError)
    assert (arrived.type_name, arrived.text, arrived.trace) == ("ValueError", "text", "the trace")


def test_a_refusal_of_a_local_class_arrives_as_a_plain_one_with_its_text(parcels: Parcels) -> None:
    class Local(gr.Rejected): ...

    arrived = parcels.unpack_error(parcels.pack_error(Local("not like this")))
    assert type(arrived) is gr.Rejected
    assert arrived.args == ("not like this",)


@wire("tests:tagged")
@attrs.frozen
class Tagged(gr.Message["TaggedReply"]):
    number: int


@wire("tests:tagged reply")
@attrs.frozen
class TaggedReply:
    number: int


class Handler(gr.Actor):
    @gr.handles
    async def handle(self, message: Tagged) -> TaggedReply:
        return TaggedReply(message.number)


def test_messages_with_a_tag_of_their_own_are_known_by_the_class_that_handles_them(parcels: Parcels) -> None:
    with pytest.raises(gr.NotEncodable):
        parcels.encode(Tagged(1))
    parcels.teach(Handler)
    assert parcels.decode(parcels.encode(Tagged(1))) == Tagged(1)


# -------------------------------------------------------------------------------------------------------------- ends


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (WorkerEnd(0), "ended by itself with exit status 0"),
        (WorkerEnd(3), "ended by itself with exit status 3"),
        (WorkerEnd(-signal.SIGKILL), "was killed by SIGKILL"),
        (WorkerEnd(-signal.SIGSEGV), "was killed by SIGSEGV"),
        (WorkerEnd(-62), "was killed by OS signal 62"),
        (WorkerEnd(None), "ended, and something else in this program took its exit status"),
        (
            WorkerEnd(-signal.SIGKILL, out_of_memory=True),
            "was killed by SIGKILL: out of memory (its control group counted an oom_kill)",
        ),
    ],
)
def test_p27_the_end_of_a_process_is_told_by_what_the_system_says(end: WorkerEnd, text: str) -> None:
    assert str(end) == text


UNIFIED = "0::/user.slice/app.scope\n"
LEGACY = "9:name=systemd:/\n4:cpu,memory:/containers/x\n0::/\n"


def test_the_count_of_a_unified_control_group_is_in_memory_events() -> None:
    assert counter_files(UNIFIED, Path("/m"))[0] == Path("/m/user.slice/app.scope/memory.events")


def test_the_count_of_a_legacy_control_group_is_in_its_memory_controller() -> None:
    assert counter_files(LEGACY, Path("/m"))[:2] == (
        Path("/m/memory/containers/x/memory.oom_control"),
        Path("/m/memory/memory.oom_control"),
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("low 0\noom 3\noom_kill 2\noom_group_kill 0\n", 2),
        ("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5),
        ("oom_kill_disable 0\nunder_oom 0\n", None),
        ("oom_kill many\n", None),
    ],
)
def test_only_the_count_of_kills_is_read(text: str, count: int | None) -> None:
    assert kills_counted(text) == count


def count(folder: Path, kills: int) -> None:
    """Have the control group of process 7 of a made-up system count so many kills."""
    (folder / "7").mkdir(exist_ok=True)
    (folder / "7/cgroup").write_text("0::/box\n")
    (folder / "box").mkdir(exist_ok=True)
    (folder / "box/memory.events").write_text(f"oom 9\noom_kill {kills}\n")


def test_p27_out_of_memory_is_said_when_the_control_group_counts_a_kill(tmp_path: Path) -> None:
    count(tmp_path, 4)
    followed = OutOfMemory(7, proc=tmp_path, mounts=tmp_path)
    assert not followed.rose()
    count(tmp_path, 5)
    assert followed.rose()


def test_p27_a_kill_that_was_noticed_before_is_not_said_to_be_this_ones(tmp_path: Path) -> None:
    count(tmp_path, 4)
    followed = OutOfMemory(7, proc=tmp_path, mounts=tmp_path)
    count(tmp_path, 5)
    followed.rose()
    assert not followed.rose()


def test_p27_where_nobody_counts_nothing_is_said(tmp_path: Path) -> None:
    assert not OutOfMemory(7, proc=tmp_path, mounts=tmp_path).rose()


# --------------------------------------------------------------------------------------------------------- real time


class Recorder:
    """A virtual clock's hold, as far as it matters here."""

    def __init__(self) -> None:
        self.held = False

    def hold(self) -> Recorder:
        return self

    def __enter__(self) -> None:
        assert not self.held
        self.held = True

    def __exit__(self, *exc: object) -> None:
        assert self.held
        self.held = False


def test_virtual_time_stands_exactly_while_a_worker_works_and_waits_for_nobody() -> None:
    clock = Recorder()
    real_time = RealTime(clock)
    assert not clock.held
    with real_time.working():
        assert clock.held
        with real_time.working(), real_time.waiting():
            assert not clock.held
        assert clock.held
    assert not clock.held


async def test_a_hold_of_the_virtual_clock_is_one_that_real_time_can_keep(clock: VirtualClock) -> None:
    with RealTime(clock).working():
        assert clock.now() == 0
