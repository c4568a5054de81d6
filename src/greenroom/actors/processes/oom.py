"""Whether the kernel killed something for want of memory: as its control group counts it, never guessed.

SIGKILL looks the same whoever sent it. A control group counts its members that were killed out of memory; only where that count rose
while the worker lived is its death called so.
"""

from __future__ import annotations

from pathlib import Path

_MOUNTS = Path("/sys/fs/cgroup")


def counter_files(membership: str, mounts: Path) -> tuple[Path, ...]:
    """Where the count of a process may stand, best first, from the text of its `/proc/PID/cgroup`.

    Inside a container the path may be that of the host, and the container's own group the root of the mount.
    """
    files: list[Path] = []
    for line in membership.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mount, name = mounts, "memory.events"
        elif "memory" in controllers.split(","):
            mount, name = mounts / "memory", "memory.oom_control"
        else:
            continue
        files += [mount / path.lstrip("/") / name, mount / name]
    return tuple(dict.fromkeys(files))


def kills_counted(text: str) -> int | None:
    """The `oom_kill` count in such a file; None when it has none."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == "oom_kill" and value.strip().isdecimal():
            return int(value)
    return None


class OutOfMemory:
    """The count of one process's control group, followed while it lives."""

    __slots__ = ("_before", "_file")

    def __init__(self, pid: int, *, proc: Path = Path("/proc"), mounts: Path = _MOUNTS) -> None:
        self._file: Path | None = None
        self._before: int | None = None
        membership = _text(proc / str(pid) / "cgroup")
        for file in counter_files(membership or "", mounts):
            text = _text(file)
            self._before = kills_counted(text) if text is not None else None
            if self._before is not None:
                self._file = file
                return

    def rose(self) -> bool:
        """Did the count rise since this was last asked (or since the beginning)? False when nobody counts."""
        text = _text(self._file) if self._file is not None else None
        now = kills_counted(text) if text is not None else None
        before, self._before = self._before, now if now is not None else self._before
        return now is not None and before is not None and now > before


def _text(file: Path) -> str | None:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return None
