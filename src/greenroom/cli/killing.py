"""`greenroom demo --kill`: the first half of a review in a process of its own, until it is killed."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from typing import Final

import anyio
from anyio.abc import Process

import greenroom as gr
from greenroom.cli.wanted import Say, Wanted
from greenroom.demo.files import walk
from greenroom.demo.messages import REVIEW
from greenroom.demo.record import Record
from greenroom.demo.review_store import store_url
from greenroom.runtime.process import CLEAN

LOOK: Final = 0.005
"""Seconds between two looks for the review that is to be killed."""


def begin_and_kill(wanted: Wanted, say: Say) -> int | None:
    """Begin a review as another process, and kill that when half of the paths have their result on record.

    Returns: the exit status of the process when it came to an end by itself; None when it was killed.
    """
    paths = sum(1 for _ in walk(wanted.folder, wanted.out))
    return anyio.run(_begin_and_kill, wanted, paths, say)


async def _begin_and_kill(wanted: Wanted, paths: int, say: Say) -> int | None:
    url = store_url(wanted.store)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        # In a session of its own, so that Ctrl-C comes to it once: from here.
        started = anyio.open_process(wanted.command(), stdin=None, stdout=None, stderr=None, start_new_session=True)
        async with await started as service, anyio.create_task_group() as beside:
            beside.start_soon(_pass_on, signals, service)
            beside.start_soon(_kill_midway, paths // 2, url, service)
            status = await service.wait()
            beside.cancel_scope.cancel()
    if status != -signal.SIGKILL:
        if status == CLEAN:
            say("the review was over before its process could be killed")
        return status
    record = Record()
    with contextlib.suppress(gr.NoSuchTask):  # somebody else has killed it, and early
        await _read(record, url, follow=False)
    if sys.stdout.isatty():
        say("")  # it was killed while it drew: the cursor stands behind its last line
    told = f"{record.progress.answered:,} of {paths:,} paths had their result on record"
    say(f"killed the process {service.pid} with SIGKILL: {told}")
    return None


async def _pass_on(signals: AsyncIterator[signal.Signals], service: Process) -> None:
    async for number in signals:
        service.send_signal(number)


async def _kill_midway(enough: int, url: str, service: Process) -> None:
    """Read the journal of a review from outside as it grows, and kill its process when so many paths are on record."""
    record = Record()
    while True:
        try:
            await _read(record, url, follow=True, enough=enough)
            return service.kill()
        except (gr.NoSuchStore, gr.StoreUnavailable, gr.NoSuchTask):  # it is just being made
            await anyio.sleep(LOOK)


async def _read(record: Record, url: str, *, follow: bool, enough: int | None = None) -> None:
    async with gr.Client(url) as client:
        async for event in client.task(REVIEW).events(after=record.cursor, follow=follow):
            record.add(event)
            if enough is not None and record.progress.answered >= enough:
                return
