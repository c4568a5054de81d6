"""Proofs of life: a file that an execution holds a lock on, which the operating system lets go when its process ends (R11)."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class FileHold:
    """An execution's lock file, locked. The lock is the open file's, so that closing it, however that comes, lets it go."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        # Python opens without inheritance: a worker process that we start does not keep the proof alive.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(self._file)
            raise

    def release(self) -> None:
        """Let go, and remove the file. Safe to call twice."""
        if self._file >= 0:
            with suppress(OSError):
                self._path.unlink()
        self.let_go()

    def let_go(self) -> None:
        """Let go and leave the file, which is what the system does for a process that dies."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)


class LockFiles:
    """The lock files of one database."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(database.name + "-executions")

    def hold(self, execution_id: str) -> FileHold:
        """Lock an execution's file. Raises `BlockingIOError` when somebody holds it."""
        return FileHold(self._path(execution_id))

    def prove_dead(self, execution_id: str) -> bool:
        """Is the execution's file there, and held by nobody? A file that is missing proves nothing."""
        try:
            file = os.open(self._path(execution_id), os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(file)
        return True

    def forget(self, execution_id: str) -> None:
        """Remove the file of an execution that has ended."""
        with suppress(OSError):
            self._path(execution_id).unlink()

    def _path(self, execution_id: str) -> Path:
        return self._folder / f"{execution_id}.lock"
