"""Process children and the program they belong to: its end is theirs, and its main file is where their classes may come from."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from tests.isolation import workers
from tests.isolation.trees import Grip, serving
from tests.isolation.workers import do

ROOT = Path(__file__).parents[2]


@pytest.mark.real_time
async def test_p09_a_parent_that_is_killed_leaves_no_worker_behind_whatever_they_do(
    backend: str, tmp_path: Path
) -> None:
    grip = Grip(tmp_path)
    command = [sys.executable, "-m", "tests.isolation.doomed_parent", backend, grip.path]
    async with await anyio.open_process(command, cwd=ROOT, stdout=None, stderr=None) as parent:
        for _ in ("idle", "its fork", "hanging", "interpreter", "its fork"):
            await grip.held()
        parent.send_signal(signal.SIGKILL)
        await grip.released()


async def test_a_loop_on_another_thread_than_the_main_one_has_process_children_too(backend: str) -> None:
    replies: list[int] = []

    async def main() -> None:
        async with serving() as service:
            replies.append(await service.worker.ask(do(workers.incarnation)))

    thread = threading.Thread(target=lambda: anyio.run(main, backend=backend))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert replies == [1]


PROGRAM = """
from __future__ import annotations
import sys
import anyio, attrs
import greenroom as gr

@attrs.frozen
class Sum:
    total: int

@attrs.frozen
class Add(gr.Message[Sum]):
    number: int

class TooMuch(gr.Rejected): ...

class Counter(gr.Actor):
    def __init__(self, start: Sum) -> None:
        self.total = start.total

    @gr.handles
    async def add(self, message: Add) -> Sum:
        if message.number > 100:
            raise TooMuch(message.number)
        self.total += message.number
        return Sum(self.total)

async def main() -> None:
    tree = gr.Supervisor("service", gr.Child("counter", Counter, Sum(3), isolation="process"))
    async with gr.Runtime(tree) as runtime:
        counter = runtime.ref("service/counter")
        print(await counter.ask(Add(2)))
        try:
            await counter.ask(Add(101))
        except TooMuch as error:
            print(repr(error))

if __name__ == "__main__":
    print("the main program runs", flush=True)
    anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("start", [["program.py"], ["-m", "program"]], ids=["file", "module"])
def test_p27_classes_of_the_main_program_are_found_without_running_it_again(
    start: list[str], backend: str, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, *start, backend]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["the main program runs", "Sum(total=5)", "TooMuch(101)"], "")


def test_p27_a_class_of_a_program_without_a_file_is_refused_when_the_spec_is_built(tmp_path: Path) -> None:
    program = "import greenroom as gr\nclass A(gr.Actor): ...\ngr.Child('a', A, isolation='process')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert "BadSpec: child 'a': A belongs to a main program that a process of its own cannot load" in done.stderr
    assert "put it into a module" in done.stderr


async def test_the_worker_imports_from_where_its_parent_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "found_only_here.py").write_text(
        "from tests.isolation.workers import Puppet as Base\nclass P(Base): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import found_only_here  # type: ignore[import-not-found]

    async with serving(found_only_here.P) as service:
        assert await service.worker.ask(do(workers.pid)) != os.getpid()
    del sys.modules["found_only_here"]


LIMITED = """
from __future__ import annotations
import os, sys
from pathlib import Path
import anyio
import greenroom as gr
from tests.isolation import workers

async def main() -> None:
    tree = gr.Supervisor("service", gr.Child("worker", workers.Puppet, isolation="process", restart="temporary"))
    async with gr.Runtime(tree) as runtime:
        try:
            await runtime.ref("service/worker").ask(workers.do(workers.fill_memory), timeout=None)
        except gr.ActorCrashed as crash:
            print(crash.__cause__)

(Path(sys.argv[2]) / "cgroup.procs").write_text(str(os.getpid()))
anyio.run(main, backend=sys.argv[1])
"""


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A fresh memory control group with room for 200 MB; skips where none can be made."""
    for parent, limit in (("memory", "memory.limit_in_bytes"), (".", "memory.max")):
        group = Path("/sys/fs/cgroup") / parent / f"greenroom-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text("200000000")
        except OSError:
            group.rmdir()
            continue
        yield group
        group.rmdir()
        return
    pytest.skip("no memory control group can be made here")


def test_p27_a_worker_that_the_kernel_kills_for_want_of_memory_is_said_to_be_out_of_memory(
    backend: str, control_group: Path
) -> None:
    command = [sys.executable, "-c", LIMITED, backend, str(control_group)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.stdout == (
        "the worker process of 'service/worker' was killed by SIGKILL: "
        "out of memory (its control group counted an oom_kill)\n"
    )
