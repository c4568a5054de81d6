"""Short blocking work beside the event loop: what touches files, or asks a database outside of any store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from greenroom.mailbox.parking import current_loop

T = TypeVar("T")


async def beside(work: Callable[[], T]) -> T:
    """Run something in a thread of its own, and wait for it; a cancelled caller does not wait.

    In virtual time the loop waits with it. A daemon: a process whose event loop was torn down must not wait at its exit for a worker that nobody will tell to end.
    """
    loop = current_loop()
    slot = loop.slot()

    def settle(result: T | None, error: BaseException | None) -> None:
        if slot.done():
            return
        if error is None:
            slot.set_result(result)
        else:
            slot.set_exception(error)

    def main() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001 - it is raised where it is awaited
            error = raised
        with suppress(RuntimeError):  # both loops' way to say that they have ended
            loop.post(lambda: settle(result, error))

    thread = threading.Thread(target=main, name="greenroom-store beside", daemon=True)
    thread.start()
    if loop.virtual_clock is not None:
        thread.join()  # so that no real time decides in which order the tasks go on
    outcome: T = await slot
    return outcome
