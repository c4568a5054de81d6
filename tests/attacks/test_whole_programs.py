"""Programs as people write them, run and interrupted as a whole."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

PATIENCE = 50.0
"""Real seconds that anything may take before the test fails: a limit, not a wait."""

ONE_FILE = """
from __future__ import annotations
import sys
import attrs
import greenroom as gr

@attrs.frozen
class Step:
    size: int

@attrs.frozen
class Add(gr.Message[int]):
    number: int

class Counter(gr.Actor):
    def __init__(self, step: Step) -> None:
        self.total = step.size

    @gr.handles
    def add(self, message: Add) -> int:
        self.total += message.number
        return self.total

TREE = gr.Supervisor("service", gr.Child("counter", Counter, Step(3), isolation="process"))

async def body(runtime: gr.Runtime) -> None:
    print(await runtime.ref("service/counter").ask(Add(2), timeout=30))

if __name__ == "__main__":
    sys.exit(gr.run(TREE, backend=sys.argv[1], body=body))
"""


def test_a_tree_at_the_top_of_the_main_program_may_have_process_children(backend: str, tmp_path: Path) -> None:
    """The worker, which runs that code as well, did not find there the class that it was just defining."""
    (tmp_path / "service.py").write_text(ONE_FILE)
    done = subprocess.run(
        [sys.executable, "service.py", backend],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


EMBEDDED = """
from __future__ import annotations
import os, signal, sys, threading
import anyio
import greenroom as gr

def interrupt_soon() -> None:
    # From outside the event loop, which has nothing to do by then: the signal finds nobody's code running but the loop's own.
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

class Slow(gr.Actor):
    async def on_start(self) -> None:
        if sys.argv[2] == "start":
            interrupt_soon()
            await anyio.sleep_forever()

    async def on_stop(self, exit: gr.Exit) -> None:
        if sys.argv[2] == "stop":
            interrupt_soon()
            await anyio.sleep(0.5)
        print("stopped", flush=True)

async def main() -> None:
    async with gr.Runtime(gr.Supervisor("service", gr.Child("slow", Slow))):
        if sys.argv[2] == "body":
            interrupt_soon()
            await anyio.sleep_forever()

anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize(("moment", "said"), [("start", []), ("body", ["stopped"]), ("stop", ["stopped"])])
def test_p11_ctrl_c_in_an_embedding_program_stops_the_tree_in_order_whenever_it_comes(
    moment: str, said: list[str], backend: str
) -> None:
    """On trio it comes as KeyboardInterrupt in the main task; while that waited for the tree's start or end, it tore through."""
    done = subprocess.run(
        [sys.executable, "-c", EMBEDDED, backend, moment], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.stdout.split() == said
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"
    assert "InternalError" not in done.stderr


WORKER = """
import signal, subprocess, sys
from greenroom.actors.processes.worker import guard
lifeline, parent, grip = map(int, sys.argv[1:])
guard(lifeline, parent)
subprocess.Popen(["sleep", "600"], pass_fds=[grip])
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells of the death of a parent's thread")
def test_p09_a_worker_whose_parent_is_dying_thread_by_thread_takes_along_what_it_has_started() -> None:
    """It was killed when the thread that had started it ended, before the lifeline was closed by the last one: its own children stayed."""
    lifeline, held_open = os.pipe()
    reading, grip = os.pipe()

    def start_and_end() -> None:
        worker = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(lifeline), str(os.getpid()), str(grip)],
            pass_fds=[lifeline, grip],
            start_new_session=True,
            stdout=subprocess.PIPE,
        )
        workers.append(worker)
        assert worker.stdout is not None
        worker.stdout.readline()

    workers: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=start_and_end)
    thread.start()
    thread.join()
    os.close(grip)
    try:
        (worker,) = workers
        released, _, _ = select.select([reading], [], [], PATIENCE)
        assert released == [reading]
        assert os.read(reading, 1) == b""  # nobody holds it any more
        assert worker.wait(PATIENCE) == -signal.SIGKILL
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
        for descriptor in (lifeline, held_open, reading):
            os.close(descriptor)
