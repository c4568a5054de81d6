"""`greenroom.run(tree)`: a whole process that is one service."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from greenroom.errors import BadSpec, StartFailed, TreeFailed
from greenroom.logs import logger_named
from greenroom.runtime.runtime import Backend, Runtime
from greenroom.runtime.signals import Signals
from greenroom.runtime.watchdog import Watchdog
from greenroom.supervisors import SupervisorSpec

logger = logger_named("greenroom.runtime")

CLEAN = 0
"""Everything stopped as it was meant to."""
FAILED = 1
"""The tree gave up, or did not start, or an actor raised SystemExit or KeyboardInterrupt."""
FORCED = 3
"""The tree has stopped, but something had to be cancelled, killed or abandoned, or failed on the way."""


def run(
    tree: SupervisorSpec,
    *,
    backend: Backend = "asyncio",
    uvloop: bool = False,
    store: str | None = None,
    final_deadline: float | None = 60.0,
    body: Callable[[Runtime], Awaitable[None]] | None = None,
) -> int:
    """Run a tree as the whole of this process until SIGTERM, SIGINT or its own end; returns the exit status.

    A first signal starts the ordered shutdown, each further one moves it a stage on. `final_deadline` seconds after the first stop
    request the process is ended by force, whatever still runs. `body` runs beside the tree; when it returns, the tree stops, and
    when the tree has ended, it is cancelled.

    Returns 0 only for a clean stop; 1 when the tree gave up or did not start, or an actor raised SystemExit or KeyboardInterrupt; 3
    when something had to be cancelled, killed or abandoned, or failed while it stopped. A hard exit has status 70. Raises what
    `body` raises; `BadSpec` for an unknown backend, or uvloop where it is not installed; `Misuse` off the main thread.
    """
    runtime = Runtime(tree, store=store, final_deadline=final_deadline)
    options = _loop_options(backend, uvloop)
    # Longer than the runtime's block: what the event loop does at its own end can hang, too.
    with Watchdog() as watchdog, Signals(watchdog) as signals:
        runtime.guarded_by(watchdog, signals)
        return anyio.run(_main, runtime, body, backend=backend, backend_options=options)


def _loop_options(backend: str, uvloop: bool) -> dict[str, Any]:
    if backend not in ("asyncio", "trio"):
        raise BadSpec(f"backend={backend!r}: choose 'asyncio' or 'trio'")
    if not uvloop:
        return {}
    if backend != "asyncio":
        raise BadSpec("uvloop=True goes with backend='asyncio'")
    try:
        import uvloop as _uvloop
    except ImportError:
        raise BadSpec("uvloop=True, but uvloop is not installed: pip install 'greenroom[uvloop]'") from None
    return {"loop_factory": _uvloop.new_event_loop}


async def _main(runtime: Runtime, body: Callable[[Runtime], Awaitable[None]] | None) -> int:
    try:
        async with runtime:
            if body is None:
                await runtime.wait_stopping()
            else:
                await body(runtime)
    except (StartFailed, TreeFailed) as error:
        if not _was_stopped_before_it_had_started(runtime):
            logger.error("%s", error, exc_info=error)
            return FAILED
    except (KeyboardInterrupt, SystemExit) as error:
        if error is not runtime.fatal:
            raise
        logger.error("an actor raised %s", type(error).__qualname__, exc_info=error)
        return FAILED
    report = runtime.report
    assert report is not None
    logger.log(logging.INFO if report.clean else logging.WARNING, "%s", report)
    return CLEAN if report.clean else FORCED


def _was_stopped_before_it_had_started(runtime: Runtime) -> bool:
    """A stop that came during the start is no failure of the tree."""
    return runtime.exit is not None and runtime.exit.cause is None
