"""`greenroom.run(tree)`: a whole process that is one service."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from greenroom.errors import BadSpec, StartFailed, TreeFailed
from greenroom.runtime.runtime import Backend, Runtime
from greenroom.supervisors import SupervisorSpec

logger = logging.getLogger("greenroom.runtime")

CLEAN = 0
"""Everything stopped when it was asked to."""
FAILED = 1
"""The tree gave up, or did not start, or was ended by an exception."""
FORCED = 3
"""The tree has stopped, but something had to be cancelled, killed or abandoned."""


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
    request the process is ended by force, whatever still runs. `body` runs beside the tree; when it returns, the tree stops.

    Returns 0 only for a clean stop; 1 when the tree gave up or did not start; 3 when something had to be cancelled, killed or
    abandoned. A hard exit has status 70. Raises `BadSpec` for an unknown backend, or uvloop where it is not installed.
    """
    if backend not in ("asyncio", "trio"):
        raise BadSpec(f"backend={backend!r}: choose 'asyncio' or 'trio'")
    options: dict[str, Any] = {}
    if uvloop:
        if backend != "asyncio":
            raise BadSpec("uvloop=True goes with backend='asyncio'")
        try:
            import uvloop as _uvloop
        except ImportError:
            raise BadSpec("uvloop=True, but uvloop is not installed: pip install 'greenroom[uvloop]'") from None
        options["loop_factory"] = _uvloop.new_event_loop
    if backend == "trio":
        # Ctrl-C is ours: it must not come as an exception out of whatever happens to run.
        options["restrict_keyboard_interrupt_to_checkpoints"] = True
    runtime = Runtime(tree, store=store, final_deadline=final_deadline, signals=True)
    return anyio.run(_main, runtime, body, backend=backend, backend_options=options)


async def _main(runtime: Runtime, body: Callable[[Runtime], Awaitable[None]] | None) -> int:
    try:
        async with runtime:
            if body is None:
                await runtime.wait_stopping()
            else:
                await body(runtime)
    except (StartFailed, TreeFailed) as error:
        logger.error("%s", error, exc_info=error)
        return FAILED
    report = runtime.report
    if report is not None:
        logger.log(logging.INFO if report.clean else logging.WARNING, "%s", report)
    return CLEAN if report is None or report.clean else FORCED
