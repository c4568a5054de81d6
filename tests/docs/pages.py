"""The documentation as data: pages, their Python blocks, what a program says that it prints, what is written as code."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import attrs
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parent.parent.parent
GUIDES = tuple(sorted((ROOT / "docs").glob("*.md")))
PAGES = (
    ROOT / "README.md",
    *GUIDES,
    *sorted((ROOT / "examples").glob("**/README.md")),
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
)

_RUN = re.compile(r'^(if __name__ == "__main__":\n\s+)?anyio\.run\(main\).*$', re.MULTILINE)
_PRINT = re.compile(r"^\s*print\(.*\)\s+# (.*)$", re.MULTILINE)
_FILE = re.compile(r"# ([a-z_]+\.py)\n")


@attrs.frozen
class Block:
    """A fenced block on a page. Its `name` says where, for the tests' own names."""

    page: Path
    line: int
    source: str

    @property
    def name(self) -> str:
        return f"{self.page.name}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that it is, when its first line says so."""
        found = _FILE.match(self.source)
        return found[1] if found is not None else None

    @property
    def is_program(self) -> bool:
        """A whole program, that runs its `main`."""
        return _RUN.search(self.source) is not None

    @property
    def is_script(self) -> bool:
        """A whole program that prints as it is loaded."""
        return not self.is_program and re.search(r"^print\(", self.source, re.MULTILINE) is not None

    @property
    def module(self) -> str:
        """The program without its last line: a module whose `main` can be run."""
        return _RUN.sub("", self.source)

    @property
    def said_output(self) -> list[str]:
        """What it says that it prints: beside each `print`, or in a comment at its end."""
        _, marked, tail = self.source.partition("# prints:\n")
        if marked:
            return [line.removeprefix("# ") for line in tail.splitlines()]
        return [said.rstrip() for said in _PRINT.findall(self.source)]


def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def blocks(page: Path, language: str = "python") -> list[Block]:
    """The fenced blocks of a page in a language, in order."""
    return [
        Block(page, token.map[0] + 1 if token.map else 0, token.content)
        for token in _tokens(page)
        if token.type == "fence" and token.info == language
    ]


def inline(page: Path) -> Iterator[Token]:
    """The inline tokens of a page: text, code, links."""
    for token in _tokens(page):
        yield from token.children or ()


def code_spans(page: Path) -> set[str]:
    """What stands between single backticks."""
    return {token.content for token in inline(page) if token.type == "code_inline"}


def links(page: Path) -> set[str]:
    """Where its links lead."""
    found = {token.attrGet("href") for token in inline(page) if token.type == "link_open"}
    return {str(target) for target in found}


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    tokens = _tokens(page)
    titles = [after.content for token, after in itertools.pairwise(tokens) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
