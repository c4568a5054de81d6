"""Small services for the command line to run, as files in a folder, and ways to run the command."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

SERVICE = """
import attrs
import greenroom as gr

@attrs.frozen
class Tick(gr.Message[None]):
    pass

class Quiet(gr.Actor):
    pass

class Ending(gr.Actor):
    async def on_start(self):
        self.context.after(0.05, Tick())
    @gr.handles
    async def tick(self, message: Tick) -> None:
        self.context.stop()

class Crashing(gr.Actor):
    async def on_start(self):
        self.context.after(0.01, Tick())
    @gr.handles
    async def tick(self, message: Tick) -> None:
        raise ValueError("on purpose")

class Failing(gr.Actor):
    async def on_start(self):
        raise OSError("no such socket")

lasting = gr.Supervisor("lasting", gr.Child("quiet", Quiet))
failing = gr.Supervisor("failing", gr.Child("bad", Failing))

def ending():
    return gr.Supervisor(
        "ending",
        gr.Child("quiet", Quiet),
        gr.Child("short", Ending, restart="transient", significant=True),
        auto_shutdown="any_significant",
    )

def crashing():
    return gr.Supervisor("crashing", gr.Child("bad", Crashing))

def printing():
    print("made", flush=True)
    return lasting
"""


def write_service(folder: Path, name: str = "service", text: str = SERVICE) -> None:
    """Write a module into a folder."""
    (folder / f"{name}.py").write_text(text)


def command(*arguments: str) -> list[str]:
    """The command line, run by this interpreter."""
    return [sys.executable, "-m", "greenroom.cli", *arguments]


def environment() -> dict[str, str]:
    """The environment for a command: as ours, with wide lines."""
    return {**os.environ, "COLUMNS": "200", "LINES": "50", "TERM": "xterm"}


def finished(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        command(*arguments), cwd=cwd, env=environment(), capture_output=True, text=True, timeout=50, check=False
    )


def in_terminal(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run the command to its end in a terminal; its exit status and what the terminal was sent."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        command(*arguments), cwd=cwd, env=environment(), stdin=slave, stdout=slave, stderr=slave
    ) as process:
        os.close(slave)
        shown = b""
        try:
            while chunk := os.read(master, 65536):
                shown += chunk
        except OSError:  # Linux says so when the last one who had the terminal open is gone
            pass
        finally:
            os.close(master)
        return process.wait(timeout=50), shown.decode()
