"""Every administration call, by name, so that what holds for all of them is tested for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import greenroom as gr
from tests.conformance.probes import Log

Call = Callable[..., Awaitable[object]]

SLOW = gr.Backoff(60.0, jitter=0.0)
"""A delay that keeps a crashed child `restarting`."""


async def _start_child(sup: gr.Ref, log: Log, name: str = "new") -> object:
    return await sup.start_child(log.child(name))


async def _replace_childspec(sup: gr.Ref, log: Log, name: str = "a") -> None:
    await sup.replace_childspec(log.child(name))


CALLS: dict[str, Call] = {
    "start_child": _start_child,
    "terminate_child": lambda sup, _log, name="a": sup.terminate_child(name),
    "restart_child": lambda sup, _log, name="down": sup.restart_child(name),
    "delete_child": lambda sup, _log, name="down": sup.delete_child(name),
    "replace_childspec": _replace_childspec,
    "which_children": lambda sup, _log: sup.which_children(),
    "count_children": lambda sup, _log: sup.count_children(),
    "get_childspec": lambda sup, _log, name="a": sup.get_childspec(name),
}
"""Each administration call, as it would succeed on a supervisor with a running child `a` and a child `down` that is down."""


async def failure_of(call: str, sup: gr.Ref, log: Log) -> BaseException | None:
    """What a call fails with: it has no timeout of its own."""
    try:
        await CALLS[call](sup, log)
    except gr.GreenroomError as error:
        return error
    return None


def assert_says(error: BaseException, *parts: str) -> None:
    """The error's text names what was wrong and the way out."""
    text = str(error)
    assert [part for part in parts if part not in text] == [], text


class Renamed(Log):
    """The same log for `CALLS["start_child"]`, which starts a child of another name."""

    def __init__(self, log: Log, name: str) -> None:
        super().__init__()
        self._log = log
        self._name = name

    def child(self, name: str, **options: object) -> gr.Child:
        return self._log.child(self._name, **options)


def dynamic(log: Log, **options: object) -> gr.Supervisor:
    """A dynamic supervisor of probes named `worker`, below `sup`."""
    template = log.child("worker", **{key: options.pop(key) for key in ("restart", "shutdown") if key in options})
    return gr.Supervisor("sup", gr.DynamicSupervisor("dyn", template, **options))  # type: ignore[arg-type]
