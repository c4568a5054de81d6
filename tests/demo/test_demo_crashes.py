"""Whose fault a crash was: a pure rule over the error that an asker gets."""

from __future__ import annotations

import asyncio

import pytest

import greenroom as gr
from greenroom.demo.crashes import Blame, blame, crash_text
from greenroom.demo.desk_actor import ChaosCrash


def crashed(cause: BaseException | None) -> gr.ActorCrashed:
    error = gr.ActorCrashed("desk/readers/reader-1", "Read", 1)
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "cause",
    [
        RecursionError("too deep"),
        MemoryError(),
        gr.WorkerDied("desk/readers/isolated", "was killed by SIGKILL"),
        gr.RemoteError("builtins.RecursionError", "too deep"),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_what_a_reader_dies_of_is_put_down_to_the_file(cause: Exception) -> None:
    assert blame(crashed(cause)) is Blame.FILE


@pytest.mark.parametrize(
    "cause",
    [ChaosCrash("struck"), gr.RemoteError("greenroom.demo.desk_actor.ChaosCrash", "struck")],
    ids=lambda cause: type(cause).__name__,
)
def test_chaos_answers_for_its_own_crashes(cause: Exception) -> None:
    assert blame(crashed(cause)) is Blame.CHAOS


@pytest.mark.parametrize("cause", [asyncio.CancelledError(), None], ids=["cancelled", "none"])
def test_nobody_is_to_blame_for_a_stop(cause: BaseException | None) -> None:
    assert blame(crashed(cause)) is Blame.NOBODY


def test_an_error_is_told_by_its_class_and_words() -> None:
    assert crash_text(crashed(ValueError("no")), "/folder") == "ValueError: no"


def test_an_error_without_words_is_told_by_its_class() -> None:
    assert crash_text(crashed(MemoryError()), "/folder") == "MemoryError"


def test_an_error_from_a_process_reads_as_one_from_the_event_loop() -> None:
    remote = gr.RemoteError("some.module.Odd", "no")

    class Odd(Exception):
        pass

    assert crash_text(crashed(remote), "/folder") == crash_text(crashed(Odd("no")), "/folder") == "Odd: no"


def test_the_text_holds_no_path_of_the_reviewed_folder() -> None:
    assert crash_text(crashed(OSError("/home/me/project/a.py is odd")), "/home/me/project") == "OSError: ./a.py is odd"
