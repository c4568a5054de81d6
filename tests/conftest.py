"""How the tests run: coroutine tests on both event loops, in virtual time, under a real-time limit.

    async def test_something(clock: VirtualClock, backend: str) -> None: ...

runs twice, as `test_something[asyncio]` and `test_something[trio]`, each time under a fresh `VirtualClock` (a test that
does not need the two fixtures leaves them out). Fixtures are plain functions; what needs a loop belongs in the test.
"""

from __future__ import annotations

import asyncio
import faulthandler
import functools
import gc
import inspect
import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, cast, get_args

import anyio
import hypothesis
import pytest
import trio

from greenroom.testing import VirtualClock
from greenroom.testing.virtual_clock import Backend

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from types import FrameType

    from tests.persistence.postgres.servers import Server

BACKENDS: Final[tuple[Backend, ...]] = get_args(Backend)

LIMIT: Final = 180.0
"""Real seconds a test may take, many times what any needs: the machine is shared. The environment variable GREENROOM_TEST_LIMIT replaces it (0: no limit, to debug)."""

FULL_LIMIT: Final = 900.0
"""Real seconds for a test marked `full`."""

INSISTENCE: Final = 2.0
"""Real seconds after which a test that has ignored its limit is interrupted again."""


# ------------------------------------------------------------------------------------------------------ settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the long tests too, and more examples of each property")


def pytest_configure(config: pytest.Config) -> None:
    # No deadline: the machine is shared. Everyday runs try the same examples each time; --full looks for new ones.
    hypothesis.settings.register_profile("everyday", deadline=None, derandomize=True)
    hypothesis.settings.register_profile("full", deadline=None, max_examples=1000, print_blob=True)
    hypothesis.settings.load_profile("full" if config.getoption("--full") else "everyday")
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        # Or each of some hundred child processes would compile all of the package anew. The sources' folders stay clean.
        folder = tempfile.TemporaryDirectory(prefix="greenroom-bytecode-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ["PYTHONPYCACHEPREFIX"] = folder.name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="long: runs with --full")
    for item in items:
        if item.get_closest_marker("full") is not None:
            item.add_marker(skip)


# ----------------------------------------------------------------------------------------------- real-time limit


class Limit:
    """The real-time limit of the test that runs."""

    def __init__(self) -> None:
        self.expired = False

    def expire(self, _signal: int, _frame: FrameType | None) -> None:
        """Show what every thread does, then interrupt the test: inside its trio run if it has one, the first time."""
        first = not self.expired
        self.expired = True
        if first:
            faulthandler.dump_traceback(file=sys.__stderr__ or 2)
            if trio.lowlevel.in_trio_run():
                trio.lowlevel.current_trio_token().run_sync_soon(self._interrupt)
                return
        self._interrupt()

    @staticmethod
    def _interrupt() -> None:
        # Event loops and supervisors take this kind of error for an order to stop, not for the failure of a task.
        raise KeyboardInterrupt("the test has used up its real time")


def end_trio_run() -> None:
    """End a trio run that was cut off while it waited, or no other can begin in this thread.

    It gives the thread back when its generator is closed, which the traceback of the interruption keeps alive.
    """
    for found in gc.get_objects():
        if inspect.isgenerator(found) and found.gi_code.co_qualname == "unrolled_run":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it says that weird things might happen, as they do
                found.close()


limit_key = pytest.StashKey[Limit]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    limit = item.stash[limit_key] = Limit()
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        return (yield)
    seconds = FULL_LIMIT if item.get_closest_marker("full") is not None else LIMIT
    seconds = float(os.environ.get("GREENROOM_TEST_LIMIT", seconds))
    before = signal.signal(signal.SIGALRM, limit.expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, INSISTENCE)
    try:
        result = yield
    except BaseException as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if limit.expired:
            end_trio_run()
            pytest.fail(f"the test was interrupted after {seconds:g} real seconds, by {type(error).__name__}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if limit.expired:
        pytest.fail(f"the test took more than {seconds:g} real seconds")
    return result


# ---------------------------------------------------------------------------------------------- coroutine tests


def coroutine_test(function: object) -> Callable[..., Awaitable[object]] | None:
    """The coroutine function that a test is made of, also where hypothesis has wrapped it; None for other tests."""
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    inner = getattr(inner, "coroutine_test", inner)
    return inner if inspect.iscoroutinefunction(inner) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names: tuple[str, ...] = BACKENDS
    if (chosen := metafunc.definition.get_closest_marker("backends")) is not None:
        names = chosen.args
        if unknown := set(names) - set(BACKENDS):
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: no such backend: {', '.join(sorted(unknown))}")
    if coroutine_test(metafunc.function) is not None and "backend" not in metafunc.fixturenames:
        metafunc.fixturenames.append("backend")
    if "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", names)


@pytest.fixture(scope="session")
def postgres() -> Generator[Server, None, None]:
    """One PostgreSQL server a test session, for those who ask for it."""
    from tests.persistence.postgres.servers import running_server  # this file also serves folders of other tests

    with running_server() as server:
        yield server


@pytest.fixture
def quiet() -> Generator[None, None, None]:
    """Nothing is logged, for tests in which much goes wrong, again and again: to tell of it would take as long as all the rest."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> VirtualClock:
    """The virtual clock that the coroutine test runs under; other tests may run something under it themselves."""
    if request.node.get_closest_marker("real_time") is not None:
        raise pytest.UsageError("a test marked real_time has no virtual clock: drop the mark or the fixture `clock`")
    return VirtualClock()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = coroutine_test(pyfuncitem.obj)
    if test is None:
        return None
    backend = cast("Backend", pyfuncitem.callspec.params["backend"])
    real_time = pyfuncitem.get_closest_marker("real_time") is not None

    if hasattr(pyfuncitem.obj, "hypothesis"):
        if "clock" in pyfuncitem.fixturenames:
            raise pytest.UsageError("each example of a property has its own clock: read `anyio.current_time()` instead")

        def one_example(**arguments: Any) -> None:
            # Looking through everything that was ever loaded would take longer than the example.
            virtual = None if real_time else VirtualClock()
            run_on(backend, virtual, functools.partial(test, **arguments), oldest_generation=1)

        one_example.coroutine_test = test  # type: ignore[attr-defined]  # for the same test on the other backend
        pyfuncitem.obj.hypothesis.inner_test = one_example
        return None

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    given = pyfuncitem.funcargs.get("clock")
    virtual = given if isinstance(given, VirtualClock) else None if real_time else VirtualClock()
    gc.freeze()  # what exists by now is not looked through for what the test leaves behind
    try:
        run_on(backend, virtual, functools.partial(test, **arguments))
    finally:
        gc.unfreeze()
    return True


def run_on(
    backend: Backend,
    clock: VirtualClock | None,
    test: Callable[[], Awaitable[object]],
    oldest_generation: int = 2,
) -> None:
    """Run one coroutine test; without a clock, on the real one. It fails if it leaves anything behind in asyncio."""
    strays: list[str] = []

    async def main() -> None:
        if backend == "trio":
            await test()
        else:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: strays.append(complaint(context)))
            await test()
            strays.extend(await tasks_left())

    if clock is None:
        anyio.run(main, backend=backend)
    else:
        clock.run(main, backend=backend)
    if backend == "asyncio":
        gc.collect(oldest_generation)  # asyncio tells of lost tasks and unread exceptions when they are collected
    if strays:
        pytest.fail("the test has left something behind in asyncio:\n" + "\n".join(strays))


def complaint(context: dict[str, Any]) -> str:
    """What asyncio's exception handler was told, in one line."""
    about = context.get("exception") or context.get("task") or context.get("future") or context.get("handle")
    return f"{context['message']}: {about!r}"


async def tasks_left() -> list[str]:
    """The tasks that run on when the test has returned; those about to end get three turns of the loop for it."""
    for _ in range(3):
        await asyncio.sleep(0)
    return [f"still running: {task!r}" for task in asyncio.all_tasks() - {asyncio.current_task()}]
