"""System calls of a process, traced and tampered with by strace, and the rule of the write-ahead log read off them.

SQLite writes a transaction into its log as frames, each a header of 24 bytes and a page. The header of the last one says how
large the database is then, and that is its commit: bytes 4 to 8 are not zero. What is acknowledged must have been synced after it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import field, frozen

HEADER: Final = 24
"""Bytes of a frame's header."""

SYNCS: Final = frozenset({"fsync", "fdatasync"})


def why_not_traced() -> str | None:
    """Why system calls cannot be traced here; None when they can."""
    if shutil.which("strace") is None:
        return "needs strace, to see the system calls of a process"
    tried = subprocess.run(["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()}"


@frozen(kw_only=True)
class Call:
    """One call that has returned. Moments are places in the trace, in which all threads are in one order."""

    name: str
    path: str
    """Of the file that it is about."""
    data: bytes = field(repr=False)
    """What it wrote."""
    result: int
    began: int
    ended: int


def unescaped(text: str) -> bytes:
    """What strace shows, as bytes: with `-xx` all of it is in hexadecimal."""
    return bytes.fromhex(text.replace("\\x", ""))


_CALL: Final = re.compile(r"^(?P<name>\w+)\(\d+<(?P<path>[^>]*)>(?:, \"(?P<data>[^\"]*)\")?")
_RESULT: Final = re.compile(r"= (-?\d+)(?: |$)")


def parse(trace: str) -> list[Call]:
    """The calls of a trace made with `-f -y -xx`, in the order in which they ended."""
    calls: list[Call] = []
    open_calls: dict[str, tuple[int, str]] = {}
    for moment, line in enumerate(trace.splitlines()):
        thread, _, text = line.partition(" ")
        text = text.strip()
        began = moment
        if text.endswith("<unfinished ...>"):
            open_calls[thread] = (moment, text.removesuffix("<unfinished ...>"))
            continue
        if text.startswith("<... "):
            began, first = open_calls.pop(thread)
            text = first + text.partition("resumed>")[2]
        call, result = _CALL.match(text), _RESULT.search(text)
        if call is not None and result is not None:
            calls.append(
                Call(
                    name=call["name"],
                    path=unescaped(call["path"]).decode(),
                    data=unescaped(call["data"] or ""),
                    result=int(result[1]),
                    began=began,
                    ended=moment,
                )
            )
    return calls


def traced(
    command: Sequence[str], folder: Path, *, inject: str | None = None
) -> tuple[subprocess.CompletedProcess[str], list[Call]]:
    """Run a command to its end, and tell what it wrote and synced.

    Args:
        folder: where the trace is kept meanwhile.
        inject: tampers with calls: `set:error=EIO:when=3`, as by strace's `-e inject`.
    """
    trace = folder / "trace.txt"
    options = ["-f", "-y", "-xx", "-s", "8192", "-e", "signal=none", "-e", "trace=write,pwrite64,fsync,fdatasync"]
    if inject is not None:
        options += ["-e", f"inject={inject}"]
    done = subprocess.run(
        ["strace", *options, "-o", str(trace), *command], capture_output=True, text=True, timeout=50, check=False
    )
    return done, parse(trace.read_text())


def killed_at(command: Sequence[str], path: Path, number: int) -> subprocess.CompletedProcess[str]:
    """Run a command, and kill it where it is about to write to a file or to sync it for the `number`-th time."""
    calls = "pwrite64,fdatasync"
    options = ("-f", "-o", "/dev/null", "-P", str(path), "-e", f"trace={calls}")
    inject = f"inject={calls}:signal=SIGKILL:when={number}"
    return subprocess.run(
        ["strace", *options, "-e", inject, *command], capture_output=True, text=True, timeout=50, check=False
    )


def unsynced(calls: Sequence[Call], log: str, acknowledged: Mapping[bytes, bytes]) -> list[bytes]:
    """Which acknowledgements went out before what they acknowledge was synced, or were never seen at all.

    Args:
        log: the path of the write-ahead log.
        acknowledged: by each line that acknowledges something, the bytes that must lie in the log then.
    """
    writes = [call for call in calls if call.path == log and call.name == "pwrite64"]
    syncs = [call for call in calls if call.path == log and call.name in SYNCS and call.result == 0]

    def synced_at(body: bytes) -> int | None:
        """When the transaction that brought the body was safe."""
        first = next((place for place, call in enumerate(writes) if body in call.data), None)
        if first is None:
            return None
        for header, page in zip(writes[first - 1 :], writes[first:], strict=False):
            if len(header.data) == HEADER and any(header.data[4:8]):
                return next((sync.ended for sync in syncs if sync.began > page.ended), None)
        return None

    bad = []
    for line, body in acknowledged.items():
        told = next((call.began for call in calls if call.name == "write" and call.data == line), None)
        safe = synced_at(body)
        if told is None or safe is None or safe > told:
            bad.append(line)
    return bad
