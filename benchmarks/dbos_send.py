"""DBOS: messages between workflows, on the same PostgreSQL. In a process of its own, as DBOS is one for the whole process.

A workflow sends numbered messages by `DBOS.send` to another, which takes each by `DBOS.recv`: durable, and once for the record, as
a message to a durable actor is. So many pairs run at once that more would bring nothing.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import attrs

PAIRS: Final = 50
"""Senders, each with its receiver. 200 pairs were no faster."""

_ROOT: Final = Path(__file__).resolve().parent.parent


def measure(server: str, n: int) -> float:
    """Messages per second, of about n.

    Args:
        server: the URL of a PostgreSQL server, on which DBOS makes a database.
    Raises:
        subprocess.CalledProcessError: if the other process failed; its stderr has gone to ours.
    """
    url = urlunsplit(urlsplit(server)._replace(path="/dbos_bench"))
    command = [sys.executable, "-m", "benchmarks.dbos_send", url, str(n)]
    done = subprocess.run(command, cwd=_ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


@attrs.define
class Note:
    """What is sent."""

    number: int
    text: str = "the words of a small message"


def _main(url: str, n: int) -> float:
    from dbos import DBOS, SetWorkflowID

    logging.disable(logging.WARNING)
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})

    @DBOS.workflow()
    def receive(count: int) -> None:
        for _ in range(count):
            assert DBOS.recv(timeout_seconds=60) is not None

    @DBOS.workflow()
    def send(to: str, count: int) -> None:
        for number in range(count):
            DBOS.send(to, Note(number))

    DBOS.launch()
    start = f"{perf_counter()}"

    def rate(pairs: int, each: int, name: str) -> float:
        receivers = [f"{start}-{name}-{pair}" for pair in range(pairs)]
        handles = []
        for receiver in receivers:
            with SetWorkflowID(receiver):
                handles.append(DBOS.start_workflow(receive, each))
        begin = perf_counter()
        handles += [DBOS.start_workflow(send, receiver, each) for receiver in receivers]
        for handle in handles:
            handle.get_result()
        return pairs * each / (perf_counter() - begin)

    try:
        rate(1, 3, "warm")
        return rate(PAIRS, max(1, n // PAIRS), "many")
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    print(_main(sys.argv[1], int(sys.argv[2])))
