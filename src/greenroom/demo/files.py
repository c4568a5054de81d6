"""Find the files to review below a folder, and read one of them without ever blocking or following a link.

What is skipped, and counted by reason:

* the report folder: `.greenroom` at any depth, and the folder that the report goes to. Those two are counted once each
  whether or not they exist yet, so that a first and a second run over the same files agree;
* version control (`.git`, `.hg`, `.svn`), `node_modules`, caches that tools rebuild (`__pycache__` and its like);
* virtual environments: a folder that holds `pyvenv.cfg` or `conda-meta`, or is called `.venv`. A folder that is only
  called `venv` is reviewed: the standard library has a package of that name;
* symbolic links, all of them: what a link leads to inside the folder is reviewed under its own name, what lies outside
  is none of ours, and so no loop can arise. The reason says which it was: inside, outside, loop or broken;
* files above `SIZE_LIMIT`, sockets, pipes and devices, and what cannot be read.

The rules are for what lies below the folder, never for the folder itself: whoever names a virtual environment gets it
reviewed.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, TypeAlias

from greenroom.demo.text import decode_path, encode_path
from greenroom.demo.values import Found, Kind, Skipped, SkipReason

REPORT_FOLDER: Final = ".greenroom"
"""The name of the folder that the report goes to, unless another is given."""

REPORT_FILES: Final = ("report.json", "report.md")
"""The names of the two files of a report."""

SIZE_LIMIT: Final = 5_000_000
"""Bytes; a larger file is skipped."""

_KINDS: Final = {
    ".py": Kind.PYTHON,
    ".pyi": Kind.PYTHON,
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".json": Kind.JSON,
    ".toml": Kind.TOML,
}

_SKIPPED_FOLDERS: Final = {
    REPORT_FOLDER: SkipReason.REPORT_FOLDER,
    ".git": SkipReason.VERSION_CONTROL,
    ".hg": SkipReason.VERSION_CONTROL,
    ".svn": SkipReason.VERSION_CONTROL,
    ".venv": SkipReason.VIRTUAL_ENVIRONMENT,
    "__pycache__": SkipReason.CACHE,
    ".hypothesis": SkipReason.CACHE,
    ".mypy_cache": SkipReason.CACHE,
    ".pytest_cache": SkipReason.CACHE,
    ".ruff_cache": SkipReason.CACHE,
    ".nox": SkipReason.CACHE,
    ".tox": SkipReason.CACHE,
    "node_modules": SkipReason.NODE_MODULES,
}

Place: TypeAlias = tuple[str, ...]

_ENVIRONMENT_MARKS: Final = ("pyvenv.cfg", "conda-meta")


def kind_of(name: str) -> Kind:
    """Tell the kind of a file by the end of its name, in upper or lower case."""
    return _KINDS.get(os.path.splitext(name)[1].lower(), Kind.OTHER)


def walk(
    folder: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, after: str = ""
) -> Iterator[Found | Skipped]:
    """Find everything below a folder, in an order that depends on names alone.

    The report folders come first; then each folder's entries sorted by name, a folder's content in its place.

    Args:
        folder: where to look. It may be reached by a link; below it no link is followed.
        out: where the report goes, if not to `folder/.greenroom`. When it is `folder` itself, only the two files of the
            report are left out.
        after: the path of something that was found: only what comes behind it, though it may have gone since.
    Raises:
        OSError: at once, if the folder does not exist or is none; below it nothing is raised, it is yielded as skipped.
    """
    root = os.path.realpath(folder)
    if not stat.S_ISDIR(os.stat(root).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder; name the folder that holds the files", os.fspath(folder))
    return _walk(root, _own_folders(root, out), _own_files(root, out), decode_path(after).rstrip("/"))


def read(folder: str | os.PathLike[str], found: Found) -> bytes | Skipped:
    """Read a found file; if it has changed into something that is not to be read, say so instead.

    Between the walk and this call it may have been replaced by a link or a pipe, may have grown or gone: no link is
    followed, a pipe is not waited for, no more than `SIZE_LIMIT` bytes are taken.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(folder, decode_path(found.path)), flags)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return Skipped(path=found.path, reason=SkipReason.SPECIAL_FILE)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(SIZE_LIMIT + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        return Skipped(path=found.path, reason=SkipReason.UNREADABLE, detail=_cause(error))
    if len(data) > SIZE_LIMIT:
        return Skipped(path=found.path, reason=SkipReason.TOO_LARGE)
    return data


def _walk(root: str, own_folders: frozenset[str], own_files: frozenset[str], last: str) -> Iterator[Found | Skipped]:
    among_own = last in own_folders
    for name in sorted(own_folders):
        if not last or (among_own and name > last):
            yield Skipped(path=encode_path(name) + "/", reason=SkipReason.REPORT_FOLDER)
    after = _place("" if among_own else last)
    pending = [""]  # a stack of paths relative to the root, the next one last; no recursion, however deep the tree
    while pending:
        name = pending.pop()
        place = _place(name)
        if name in own_folders or name in own_files or place < after[: len(place)]:
            continue
        try:
            seen = _look(root, name)
        except OSError as error:
            seen = Skipped(path=encode_path(name), reason=SkipReason.UNREADABLE, detail=_cause(error))
        if isinstance(seen, list):
            pending.extend(os.path.join(name, entry) for entry in reversed(seen))
        elif place > after or not after:
            yield seen


def _place(name: str) -> Place:
    """Where something comes in the walk."""
    return tuple(part for part in name.split("/") if part not in ("", "."))


def _look(root: str, name: str) -> Found | Skipped | list[str]:
    """Tell what is there; for a folder that is to be entered, its entries by name."""
    path = os.path.join(root, name)
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return Skipped(path=encode_path(name), reason=_link_reason(root, path))
    if stat.S_ISDIR(status.st_mode):
        reason = _folder_reason(path) if name else None
        if reason is not None:
            return Skipped(path=encode_path(name) + "/", reason=reason)
        try:
            return sorted(os.listdir(path))
        except OSError as error:
            shown = encode_path(name) + "/" if name else "./"
            return Skipped(path=shown, reason=SkipReason.UNREADABLE, detail=_cause(error))
    if not stat.S_ISREG(status.st_mode):
        return Skipped(path=encode_path(name), reason=SkipReason.SPECIAL_FILE)
    if status.st_size > SIZE_LIMIT:
        return Skipped(path=encode_path(name), reason=SkipReason.TOO_LARGE)
    return Found(path=encode_path(name), kind=kind_of(name), size=status.st_size)


def _folder_reason(path: str) -> SkipReason | None:
    reason = _SKIPPED_FOLDERS.get(os.path.basename(path))
    if reason is None and any(os.path.lexists(os.path.join(path, mark)) for mark in _ENVIRONMENT_MARKS):
        return SkipReason.VIRTUAL_ENVIRONMENT
    return reason


def _link_reason(root: str, path: str) -> SkipReason:
    try:
        status = os.stat(path)
    except OSError as error:
        return SkipReason.LINK_LOOP if error.errno == errno.ELOOP else SkipReason.LINK_BROKEN
    target = os.path.realpath(path)
    if stat.S_ISDIR(status.st_mode) and _within(os.path.dirname(path), target):
        return SkipReason.LINK_LOOP
    return SkipReason.LINK_INSIDE if _within(target, root) else SkipReason.LINK_OUTSIDE


def _own_folders(root: str, out: str | os.PathLike[str] | None) -> frozenset[str]:
    if out is None:
        return frozenset({REPORT_FOLDER})
    target = os.path.realpath(out)
    if target == root or not _within(target, root):
        return frozenset({REPORT_FOLDER})
    return frozenset({REPORT_FOLDER, os.path.relpath(target, root)})


def _own_files(root: str, out: str | os.PathLike[str] | None) -> frozenset[str]:
    return frozenset(REPORT_FILES) if out is not None and os.path.realpath(out) == root else frozenset()


def _within(path: str, folder: str) -> bool:
    return os.path.commonpath((path, folder)) == folder


def _cause(error: OSError) -> str:
    """The system's own words, without the absolute path that `str(error)` would add."""
    return error.strerror or type(error).__name__
