"""Text that may be shown, stored and sent: file names as JSON can hold them, messages without control characters.

A file name is bytes, and not always UTF-8; Python shows it as a `str` that may hold lone surrogates, which JSON cannot
carry. So a path travels in its *transport form*: printable characters stand for themselves, everything else and `%`
itself is percent-encoded byte by byte. The form is unambiguous: `decode_path(encode_path(name)) == name` for each name
that the file system can give.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_to_bytes

MESSAGE_LIMIT: Final = 300
"""Characters of a message or heading that are kept; a single line of a hostile file may be megabytes long."""

_LONE_SURROGATE: Final = re.compile(r"%u([0-9A-F]{4})")
_ADDRESS: Final = re.compile(r"0x[0-9a-fA-F]+")
_PROCESS: Final = re.compile(r"\b(pid|process) \d+")
_RECURSION: Final = re.compile(r"(maximum recursion depth exceeded).*")


def encode_path(name: str) -> str:
    """Give the transport form of a relative path: printable text, valid in JSON, `/` between its parts."""
    return "".join(character if _stands_for_itself(character) else _escaped(character) for character in name)


def decode_path(text: str) -> str:
    """Give back the path, as `os` functions take it, that `encode_path` made `text` from."""
    pieces = _LONE_SURROGATE.split(text)  # every second piece is the four digits of one lone surrogate
    return "".join(
        chr(int(piece, 16)) if index % 2 else unquote_to_bytes(piece).decode("utf-8", "surrogateescape")
        for index, piece in enumerate(pieces)
    )


def _stands_for_itself(character: str) -> bool:
    return character.isprintable() and character != "%"


def _escaped(character: str) -> str:
    try:
        raw = character.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a surrogate that stands for no byte: only Windows has such names
        return f"%u{ord(character):04X}"
    return "".join(f"%{byte:02X}" for byte in raw)


def printable(text: str) -> str:
    """Make a message fit to be shown: one line, no control characters, no lone surrogates, at most `MESSAGE_LIMIT`."""
    if len(text) > MESSAGE_LIMIT:
        text = text[: MESSAGE_LIMIT - 1] + "…"
    if text.isprintable():
        return text
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
    return shown if len(shown) <= MESSAGE_LIMIT else shown[: MESSAGE_LIMIT - 1] + "…"


def stable_error(text: str, folder: str) -> str:
    """Take out of an error text what differs between two runs over the same files.

    Args:
        text: what a crash said, best as `f"{type(error).__name__}: {error}"`; only its first line is kept.
        folder: the reviewed folder, replaced by `.` so that findings hold no absolute path.
    Returns: the text without memory addresses, process ids and the place where a recursion happened to be noticed.
    """
    line = text.strip().partition("\n")[0]
    if folder.strip("/"):
        line = line.replace(folder.rstrip("/"), ".")
    line = _ADDRESS.sub("0x…", line)
    line = _PROCESS.sub(r"\1", line)
    return printable(_RECURSION.sub(r"\1", line))


def decode_utf8(data: bytes) -> tuple[str, int | None]:
    """Decode UTF-8, a byte order mark dropped; the second value is the line of the first wrong byte, if there is one.

    Wrong bytes become U+FFFD, so that the rest of the file can still be reviewed.
    """
    try:
        return data.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:  # its place counts from behind the mark, in its own object
        return data.decode("utf-8-sig", "replace"), error.object.count(b"\n", 0, error.start) + 1


def count_lines(text: str) -> int:
    """Count lines as an editor does: a last line without a newline is one too, an empty file has none."""
    return text.count("\n") + (1 if text and not text.endswith("\n") else 0)
