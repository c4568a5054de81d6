"""Short blocking work beside the event loop: what touches files, or asks a database outside of any store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TypeVar

from greenroom.mailbox.parking import current_loop

T = TypeVar("T")


async def beside(work: Callable[[], T]) -> T:
    """Run something in a thread of its own, and wait for it; a cancelled caller does not wait.

    A daemon: a process whose event loop was torn down must not wait at its exit for a worker that nobody will tell to end.
    """
    loop = current_loop()
    slot = loop.slot()
    clock = loop.virtual_clock

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

    threading.Thread(target=main, name="greenroom-store beside", daemon=True).start()
    with clock.hold() if clock is not None else nullcontext():
        outcome: T = await slot
    return outcome
