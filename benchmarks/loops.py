"""The event loops that the benchmarks run on."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeVar, TypeVarTuple

import anyio

Backend = Literal["asyncio", "uvloop", "trio"]
BACKENDS: Final[tuple[Backend, ...]] = ("asyncio", "uvloop", "trio")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def available_backends() -> tuple[Backend, ...]:
    """Those that are installed here; asyncio always is."""
    return tuple(name for name in BACKENDS if importlib.util.find_spec(name) is not None)


def run_on(backend: str, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Call `function` in a fresh event loop of that kind and return its answer.

    Raises:
        ValueError: if there is no such backend.
    """
    if backend == "trio":
        return anyio.run(function, *args, backend="trio")
    if backend in ("asyncio", "uvloop"):
        return anyio.run(function, *args, backend="asyncio", backend_options={"use_uvloop": backend == "uvloop"})
    raise ValueError(f"no backend is called {backend!r}: choose from {', '.join(BACKENDS)}")
