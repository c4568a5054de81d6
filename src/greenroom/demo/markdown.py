"""Review a Markdown file: its headings, and its relative links that lead nowhere.

Which links are judged:

* inline links, images, and the definitions of reference links (at the line of the definition, once, used or not);
* not in code, and not in HTML, which is not Markdown;
* not with a scheme (`https:`, `mailto:`), not to a host (`//host`), not from the site's root (`/page`, since only the
  site knows its root), not to a part of the same page (`#part`, `?query`);
* not into a report folder, which may or may not have been written yet.

A judged link is cut at `?` and `#`, percent-decoded, and resolved from the folder of the file it stands in, `..` taken
away by name as a browser does; it is dead when neither a file nor a folder is there. It may lead out of the reviewed
folder: what is there decides. Whether `#part` exists in the other file is not judged.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from markdown_it import MarkdownIt
from markdown_it.token import Token

from greenroom.demo.files import REPORT_FOLDER
from greenroom.demo.text import count_lines, decode_path, decode_utf8, encode_path
from greenroom.demo.values import Code, Finding, Heading, Review

Exists = Callable[[str], bool]
"""Answers whether a file or folder is there, for a path relative to the reviewed folder as `os` functions take it."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")


class _Parser(MarkdownIt):
    """CommonMark that leaves a link's destination as it was written, so that messages show it so."""

    def __init__(self) -> None:
        # store_labels marks the uses of reference links, which are judged where they are defined
        super().__init__("commonmark", {"store_labels": True, "maxNesting": 100})

    def normalizeLink(self, url: str) -> str:  # noqa: N802 - the name is the library's
        return url


def review(path: str, data: bytes, exists: Exists) -> Review:
    """Review one Markdown file, taken as UTF-8.

    Args:
        path: of the file, in transport form; links are resolved from its folder.
        exists: asked once for each relative link.
    """
    text, wrong = decode_utf8(data)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    environment: dict[str, Any] = {}
    tokens = _Parser().parse(_without_front_matter(text), environment)
    findings = [
        Finding(path=path, line=line, code=Code.BAD_ENCODING, message="not UTF-8 from here on")
        for line in (wrong,)
        if line is not None
    ]
    folder = posixpath.dirname(decode_path(path))
    count = 0
    for line, link in sorted({*_links(tokens), *_definitions(environment)}):
        target = relative_target(link)
        if target is None:
            continue
        count += 1
        where = posixpath.normpath(posixpath.join(folder, target))
        if not exists(where):
            message = f"the link {link} leads nowhere: there is no {encode_path(where)}"
            findings.append(Finding(path=path, line=line, code=Code.DEAD_LINK, message=message))
    headings = tuple(_headings(tokens))
    return Review(
        lines=count_lines(text),
        heading_count=len(headings),
        link_count=count,
        headings=headings,
        findings=tuple(findings),
    )


def relative_target(link: str) -> str | None:
    """Give the relative path that a link's destination names, as `os` takes it, or None if it is not to be judged."""
    if _SCHEME.match(link):
        return None
    target = os.fsdecode(unquote_to_bytes(re.split(r"[?#]", link, maxsplit=1)[0]))
    if not target or target.startswith("/") or REPORT_FOLDER in target.split("/"):
        return None
    return target


def _without_front_matter(text: str) -> str:
    """Blank the YAML block that site generators allow at the top; as Markdown it would be a rule and a heading."""
    match = _FRONT_MATTER.match(text)
    return text if match is None else "\n" * match.group().count("\n") + text[match.end() :]


def _headings(tokens: Sequence[Token]) -> Iterator[Heading]:
    for token, content in itertools.pairwise(tokens):
        if token.type == "heading_open" and token.map is not None:
            text = " ".join(_plain(content.children or ()).split())
            yield Heading(level=int(token.tag[1:]), text=text, line=token.map[0] + 1)


def _plain(tokens: Sequence[Token]) -> str:
    """The text that a reader sees: markup gone, code and the text of images kept, a line break is a space."""
    return "".join(
        " " if token.type in ("softbreak", "hardbreak") else "" if token.type == "html_inline" else token.content
        for token in tokens
    )


def _links(tokens: Sequence[Token]) -> Iterator[tuple[int, str]]:
    for block in tokens:
        if block.type != "inline" or block.map is None:
            continue
        line = block.map[0] + 1
        for token in block.children or ():
            if token.type in ("softbreak", "hardbreak"):
                line += 1
            elif token.type in ("link_open", "image") and "label" not in token.meta:
                yield line, str(token.attrGet("src" if token.type == "image" else "href") or "")


def _definitions(environment: dict[str, Any]) -> Iterator[tuple[int, str]]:
    for definition in environment.get("references", {}).values():
        yield definition["map"][0] + 1, str(definition["href"])
