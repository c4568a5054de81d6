"""`greenroom demo --kill`: the first half of a review in a process of its own, until it is killed."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from typing import Final

import anyio
from anyio.abc import Process

import greenroom as gr
from greenroom.cli.wanted import Say, Wanted
from greenroom.demo.files import walk
from greenroom.demo.messages import Portion
from greenroom.demo.portions import in_portions
from greenroom.demo.review_store import clerk_of, store_url
from greenroom.runtime.process import CLEAN

LOOK: Final = 0.005
"""Seconds between two looks at the store of the service that is to be killed."""


def begin_and_kill(wanted: Wanted, say: Say) -> int | None:
    """Begin a review as another process, and kill that when half of the work list is done.

    Returns: the exit status of the process when it came to an end by itself; None when it was killed.
    """
    portions = list(in_portions(walk(wanted.folder, wanted.out)))
    return anyio.run(_begin_and_kill, wanted, portions, say)


async def _begin_and_kill(wanted: Wanted, portions: list[Portion], say: Say) -> int | None:
    url = store_url(wanted.store)
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        # In a session of its own, so that Ctrl-C comes to it once: from here.
        started = anyio.open_process(wanted.command(), stdin=None, stdout=None, stderr=None, start_new_session=True)
        async with await started as service, anyio.create_task_group() as beside:
            beside.start_soon(_pass_on, signals, service)
            beside.start_soon(_kill_when_done, portions[len(portions) // 2], url, service)
            status = await service.wait()
            beside.cancel_scope.cancel()
    if status != -signal.SIGKILL:
        if status == CLEAN:
            say("the review was over before its process could be killed")
        return status
    done = await _count_done(portions, url)
    if sys.stdout.isatty():
        say("")  # it was killed while it drew: the cursor stands behind its last line
    say(f"killed the process {service.pid} with SIGKILL: {done} of {len(portions)} portions were done")
    return None


async def _pass_on(signals: AsyncIterator[signal.Signals], service: Process) -> None:
    async for number in signals:
        service.send_signal(number)


async def _kill_when_done(portion: Portion, url: str, service: Process) -> None:
    """Watch a review from outside, and kill it when this portion has been handled."""
    while True:
        try:
            async with gr.Client(url) as client:
                while True:
                    message = await client.message(clerk_of(portion), portion.key)
                    if message is not None and message.status == "handled":
                        return service.kill()
                    await anyio.sleep(LOOK)
        except (gr.NoSuchStore, gr.StoreUnavailable):  # it is just being made
            await anyio.sleep(LOOK)


async def _count_done(portions: list[Portion], url: str) -> int:
    async with gr.Client(url) as client:
        messages = [await client.message(clerk_of(portion), portion.key) for portion in portions]
    return sum(message is not None and message.status == "handled" for message in messages)
