"""Processes that are one service, from outside: OS signals, hard exits, exit statuses. Each test runs a real process."""

from __future__ import annotations

import signal

import pytest

from tests.shutdown.processes import running

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])
ALL_LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio", "uvloop"])

CLEAN, FAILED, FORCED, HARD = 0, 1, 3, 70


# ------------------------------------------------------------------------------------------- one signal after another


@ALL_LOOPS
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_p05_a_first_signal_stops_the_tree_in_order_and_the_status_is_0(loop: str, number: int) -> None:
    with running("quiet", loop) as process:
        process.hears("ready")
        process.signal(number)
        assert process.status() == CLEAN
    assert process.words == ["on_stop b shutdown", "on_stop a shutdown", "body left"]
    assert f"{signal.Signals(number).name} arrived (stage requested)" in process.text


@LOOPS
def test_p05_without_a_body_a_signal_ends_the_process_as_well(loop: str) -> None:
    with running("no-body", loop) as process:
        process.hears("starting")
        process.hears("progress")
        process.signal()
        assert process.status() == CLEAN
    assert process.words == ["on_stop slow shutdown"]


@LOOPS
def test_p05_a_signal_during_the_start_stops_what_has_started_and_is_no_failure(loop: str) -> None:
    with running("no-body", loop) as process:
        process.hears("starting")
        process.signal()
        assert process.status() == CLEAN
    assert process.words == ["on_stop slow shutdown"]


@ALL_LOOPS
def test_p05_p08_a_second_signal_cancels_a_child_without_a_shutdown_time_and_the_status_is_3(loop: str) -> None:
    with running("patient", loop) as process:
        process.hears("working")
        process.signal()
        process.hears("stage requested")
        process.signal()
        assert process.status() == FORCED
    assert process.words == ["on_stop a killed", "body left"]


@LOOPS
def test_p05_a_third_signal_cuts_on_stop_short_and_the_status_is_3(loop: str) -> None:
    with running("dogged", loop) as process:
        process.hears("working")
        process.signal()
        process.hears("stage requested")
        process.signal()
        process.hears("on_stop a killed")
        process.signal()
        assert process.status() == FORCED
    assert "stage forced" in process.text


@LOOPS
def test_p05_a_signal_after_the_last_stage_ends_the_process_with_70_report_and_stacks(loop: str) -> None:
    with running("stuck", loop) as process:
        process.hears("working")
        for stage in ("requested", "cancelled", "forced"):
            process.signal()
            process.hears(f"stage {stage}")
        process.hears("stuck: service/a")
        process.signal()
        assert process.status() == HARD
    assert "ended by force: it was told to stop once more after the last stage" in process.text
    assert "stuck: service/a" in process.text.partition("ended by force")[2]
    assert "Current thread" in process.text


@LOOPS
def test_p05_the_first_signal_does_not_cut_short_a_shutdown_that_is_under_way(loop: str) -> None:
    with running("stops-itself", loop) as process:
        process.hears("on_stop a shutdown")
        process.signal()
        assert process.status() == CLEAN
    assert "a has cleaned up" in process.words


# ---------------------------------------------------------------------------------------------------- a blocked loop


@ALL_LOOPS
def test_p05_a_blocked_loop_that_does_not_take_up_a_signal_is_ended_with_70(loop: str) -> None:
    with running("blocked", loop) as process:
        process.hears("working")
        process.signal()
        assert process.status() == HARD
    assert "ended by force: a signal was not taken up within 0.3 s" in process.text
    assert "in block" in process.text.partition("stacks of all threads")[2]


@LOOPS
def test_p05_a_blocked_loop_is_ended_at_the_final_deadline(loop: str) -> None:
    with running("blocked-until-the-deadline", loop) as process:
        assert process.status() == HARD
    assert "ended by force: its final deadline has passed" in process.text


def test_p05_a_hard_exit_does_not_need_a_standard_error_stream() -> None:
    with running("nobody-reads", "asyncio") as process:
        assert process.status() == HARD


# ------------------------------------------------------------------------------------------------ the final deadline


@LOOPS
def test_p04_the_final_deadline_ends_a_process_whose_child_is_stuck(loop: str) -> None:
    with running("stuck-until-the-deadline", loop) as process:
        process.hears("working")
        process.signal()
        assert process.status() == HARD
    last_words = process.text.partition("ended by force")[2]
    assert "its final deadline has passed" in last_words
    assert "unknown: service/a" in last_words  # its kill time had not passed yet


@LOOPS
def test_p04_an_embedded_runtime_with_a_final_deadline_ends_the_process_too(loop: str) -> None:
    with running("embedded-stuck", loop) as process:
        process.hears("swallowed")
        process.hears("stuck: service/a")
        assert process.status() == HARD
    before, _, last_words = process.text.partition("ended by force")
    assert "stuck: service/a" in last_words
    assert "in swallow" in before


@LOOPS
def test_p04_a_tree_that_gave_up_but_cannot_end_is_ended_at_the_final_deadline(loop: str) -> None:
    with running("gives-up-stuck", loop) as process:
        assert process.status() == HARD
    assert "it gave up" in process.text


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_p04_the_final_deadline_holds_for_the_end_of_the_event_loop_as_well(loop: str) -> None:
    with running("leaves-a-thread", loop) as process:
        assert process.status() == HARD
    assert process.words == ["on_stop a shutdown"]


# ---------------------------------------------------------------------------------------------------- exit statuses


@LOOPS
def test_p17_a_tree_that_gave_up_has_status_1_and_says_why(loop: str) -> None:
    with running("gives-up", loop) as process:
        assert process.status() == FAILED
    assert "ValueError: on purpose" in process.text
    assert "RestartLimitExceeded" in process.text


@LOOPS
def test_a_tree_that_does_not_start_has_status_1_and_is_rolled_back(loop: str) -> None:
    with running("does-not-start", loop) as process:
        assert process.status() == FAILED
    assert process.words == ["on_stop a shutdown"]
    assert "'service/refuses' could not be started" in process.text


@LOOPS
@pytest.mark.parametrize("name", ["exits", "interrupts"])
def test_p15_system_exit_or_keyboard_interrupt_in_an_actor_stops_the_tree_and_the_status_is_not_0(
    loop: str, name: str
) -> None:
    with running(name, loop) as process:
        assert process.status() == FAILED
    assert process.words == ["on_stop a error", "body left", "on_stop b shutdown"]


# ---------------------------------------------------------------------------------------------------- embedded, Ctrl-C


@LOOPS
def test_p11_ctrl_c_in_a_program_that_owns_its_loop_stops_the_tree_in_order(loop: str) -> None:
    with running("embedded", loop) as process:
        process.hears("ready")
        process.signal(signal.SIGINT)
        assert process.status() == 0
    assert process.words == ["on_stop b shutdown", "on_stop a shutdown", "interrupted"]


@LOOPS
def test_p11_a_second_ctrl_c_ends_everything_though_a_child_takes_its_time(loop: str) -> None:
    with running("embedded-stubborn", loop) as process:
        process.hears("ready")
        process.signal(signal.SIGINT)
        process.hears("on_stop b shutdown")
        process.signal(signal.SIGINT)
        assert process.status() == 0
    assert process.words[-1] == "interrupted"
