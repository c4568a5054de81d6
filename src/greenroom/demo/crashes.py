"""Whose fault a crash was, and what to write about it: rules over the error that an asker gets."""

from __future__ import annotations

import enum

import greenroom as gr
from greenroom.demo.desk_actor import ChaosCrash
from greenroom.demo.text import stable_error


class Blame(enum.Enum):
    """Who made a reader crash."""

    FILE = "file"
    CHAOS = "chaos"
    NOBODY = "nobody"
    """It was stopped with the file in hand, with a sibling or for the service's end."""


def blame(crash: gr.ActorCrashed) -> Blame:
    """Say who made a reader crash with a file in hand."""
    cause = crash.__cause__
    if isinstance(cause, ChaosCrash) or (isinstance(cause, gr.RemoteError) and _is_chaos(cause)):
        return Blame.CHAOS
    # a cancellation is no Exception, on either event loop
    return Blame.FILE if isinstance(cause, Exception) else Blame.NOBODY


def _is_chaos(error: gr.RemoteError) -> bool:
    return error.type_name.rpartition(".")[2] == ChaosCrash.__name__


def crash_text(crash: gr.ActorCrashed, folder: str) -> str:
    """Say what a reader died of, in words that are the same in each run over the same files.

    Args:
        folder: the reviewed folder, as `os` functions take it.
    """
    cause = crash.__cause__
    match cause:
        case gr.RemoteError():
            text = f"{cause.type_name.rpartition('.')[2]}: {cause.text}"
        case gr.WorkerDied():
            text = f"the reader's process {cause.how}"
        case _:
            text = f"{type(cause).__name__}: {cause}"
    return stable_error(text.removesuffix(": "), folder)
