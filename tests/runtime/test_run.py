"""`greenroom.run(tree)`: a whole process as one service, called within this process."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

import anyio
import pytest
import sniffio

import greenroom as gr
from tests.conformance.probes import Boom, Crash, End, Hold, Log, settle


def test_a_body_that_returns_ends_the_service_with_0(backend: Any) -> None:
    log = Log()

    async def body(runtime: gr.Runtime) -> None:
        assert sniffio.current_async_library() == backend
        assert runtime.ref("sup/a").path == "sup/a"

    assert gr.run(gr.Supervisor("sup", log.child("a")), backend=backend, body=body) == 0
    assert log.take() == ["start a", "stop a"]


def test_without_a_body_it_runs_until_the_tree_ends_by_itself(backend: Any) -> None:
    class Brief(gr.Actor):
        async def on_start(self) -> None:
            self.context.stop()

    child = gr.Child("brief", Brief, restart="transient", significant=True)
    assert gr.run(gr.Supervisor("sup", child, auto_shutdown="any_significant"), backend=backend) == 0


def test_an_actor_may_ask_the_service_to_stop(backend: Any) -> None:
    class Last(gr.Actor):
        async def on_start(self) -> None:
            self.context.after(0.0, End())

        @gr.handles
        async def end(self, _message: End) -> None:
            self.context.runtime.request_stop()

    async def body(_runtime: gr.Runtime) -> None:
        await anyio.sleep_forever()

    assert gr.run(gr.Supervisor("sup", gr.Child("last", Last)), backend=backend, body=body) == 0


def test_what_the_body_raises_comes_out_of_it(backend: Any) -> None:
    log = Log()

    async def body(_runtime: gr.Runtime) -> None:
        raise Boom("mine")

    with pytest.raises(Boom, match="mine"):
        gr.run(gr.Supervisor("sup", log.child("a")), backend=backend, body=body)
    assert log.take() == ["start a", "stop a"]


def test_p17_a_tree_that_gave_up_gives_1_and_is_logged_with_its_causes(
    backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log()

    async def body(runtime: gr.Runtime) -> None:
        runtime.ref("sup/a").tell(Crash(Boom("the crash")))
        await anyio.sleep_forever()

    assert gr.run(gr.Supervisor("sup", log.child("a"), intensity=0), backend=backend, body=body) == 1
    told = [record for record in caplog.records if record.name == "greenroom.runtime" and record.exc_info]
    (record,) = told
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], gr.TreeFailed)


def test_something_that_had_to_be_cancelled_gives_3(backend: Any, caplog: pytest.LogCaptureFixture) -> None:
    log = Log()

    async def body(runtime: gr.Runtime) -> None:
        runtime.ref("sup/a").tell(Hold(anyio.Event()))
        await anyio.wait_all_tasks_blocked()

    assert gr.run(gr.Supervisor("sup", log.child("a", shutdown=0.05)), backend=backend, body=body) == 3
    assert "cancelled: sup/a" in caplog.text


def test_an_on_stop_that_fails_gives_3(backend: Any) -> None:
    log = Log()
    log.next_stops("a", Boom("on purpose"))

    async def body(_runtime: gr.Runtime) -> None: ...

    assert gr.run(gr.Supervisor("sup", log.child("a")), backend=backend, body=body) == 3


def test_a_child_that_is_meant_to_be_cut_off_does_not_spoil_the_0(backend: Any) -> None:
    log = Log()

    async def body(runtime: gr.Runtime) -> None:
        runtime.ref("sup/a").tell(Hold(anyio.Event()))
        await anyio.wait_all_tasks_blocked()

    assert gr.run(gr.Supervisor("sup", log.child("a", shutdown="kill")), backend=backend, body=body) == 0


def test_p05_a_signal_that_came_before_the_loop_ran_is_not_lost(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    run = anyio.run

    def signalled(*args: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return run(*args, **options)

    monkeypatch.setattr("greenroom.runtime.process.anyio.run", signalled)
    entered = []

    async def body(_runtime: gr.Runtime) -> None:
        entered.append(True)

    assert gr.run(gr.Supervisor("sup", log.child("a")), backend=backend, body=body) == 0
    assert log.take() in ([], ["start a", "stop a"])  # as trio's scheduler likes
    assert not entered


def test_p15_its_signals_and_its_thread_are_gone_afterwards(backend: Any) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def body(_runtime: gr.Runtime) -> None:
        assert signal.getsignal(signal.SIGINT) != before[0]

    assert gr.run(gr.Supervisor("sup"), backend=backend, body=body) == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert [thread for thread in threading.enumerate() if thread.name == "greenroom-watchdog"] == []


def test_it_runs_on_uvloop_when_asked() -> None:
    uvloop = pytest.importorskip("uvloop")
    loops: list[type] = []

    async def body(_runtime: gr.Runtime) -> None:
        import asyncio

        loops.append(type(asyncio.get_running_loop()))
        await settle()

    assert gr.run(gr.Supervisor("sup"), uvloop=True, body=body) == 0
    assert loops == [uvloop.Loop]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"backend": "curio"}, "choose 'asyncio' or 'trio'"),
        ({"backend": "trio", "uvloop": True}, "goes with backend='asyncio'"),
        ({"final_deadline": 0}, "final_deadline"),
        ({"store": 5}, "the URL of a database"),
    ],
)
def test_options_that_cannot_work_are_refused_before_anything_runs(options: dict[str, Any], text: str) -> None:
    log = Log()
    with pytest.raises(gr.BadSpec, match=text):
        gr.run(gr.Supervisor("sup", log.child("a")), **options)
    assert log.take() == []


def test_uvloop_that_is_not_installed_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(gr.BadSpec, match=r"pip install 'greenroom\[uvloop\]'"):
        gr.run(gr.Supervisor("sup"), uvloop=True)
