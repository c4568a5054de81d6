"""The thread in which a lease is renewed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, atexit
from greenroom.persistence.postgres.renewer import AsyncThread

thread = AsyncThread("renews")
thread.run(lambda: asyncio.sleep(0, "worked"))
atexit.register(thread.close)  # when threads take no more work
"""


def test_a_renewal_that_ends_with_its_interpreter_ends_in_silence() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
