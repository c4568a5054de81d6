"""The values that travel between intake, readers, index and reporter.

All are frozen, hold only strings, numbers, tuples and one another, and can cross a process border as JSON. Paths are
relative to the reviewed folder and in the transport form of `greenroom.demo.text`.
"""

from __future__ import annotations

import enum

import attrs

from greenroom.demo.text import printable


class Kind(enum.StrEnum):
    """What a file is taken for, by the end of its name."""

    PYTHON = "python"
    MARKDOWN = "markdown"
    JSON = "json"
    TOML = "toml"
    OTHER = "other"  # counted, listed, not reviewed


class SkipReason(enum.StrEnum):
    """Why something was seen and not taken up."""

    REPORT_FOLDER = "report_folder"
    VERSION_CONTROL = "version_control"
    VIRTUAL_ENVIRONMENT = "virtual_environment"
    CACHE = "cache"
    NODE_MODULES = "node_modules"
    LINK_LOOP = "link_loop"
    LINK_INSIDE = "link_inside"
    LINK_OUTSIDE = "link_outside"
    LINK_BROKEN = "link_broken"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    SPECIAL_FILE = "special_file"
    NOT_WANTED = "not_wanted"
    """The review was narrowed before it came to this file."""


class Code(enum.StrEnum):
    """The stable short name of each kind of finding."""

    SYNTAX_ERROR = "syntax-error"
    NULL_BYTE = "null-byte"
    BAD_ENCODING = "bad-encoding"
    BYTE_ORDER_MARK = "byte-order-mark"
    DEAD_LINK = "dead-link"
    JSON_INVALID = "json-invalid"
    JSON_DUPLICATE_KEY = "json-duplicate-key"
    JSON_CONSTANT = "json-constant"
    JSON_LONG_NUMBER = "json-long-number"
    TOML_INVALID = "toml-invalid"
    LIST_CUT = "list-cut"
    UNREADABLE = "unreadable"
    CRASHED = "crashed"


class Status(enum.StrEnum):
    """How a file, or a folder that was skipped whole, came out."""

    REVIEWED = "reviewed"
    NOT_REVIEWED = "not_reviewed"
    SKIPPED = "skipped"
    CRASHED = "crashed"


@attrs.frozen(kw_only=True)
class Found:
    """A regular file below the folder, of `size` bytes when it was seen."""

    path: str
    kind: Kind
    size: int = attrs.field(validator=attrs.validators.ge(0))


@attrs.frozen(kw_only=True)
class Skipped:
    """Something that is not taken up; the path of a folder ends with `/`. `detail` says more, or is empty."""

    path: str
    reason: SkipReason
    detail: str = attrs.field(default="", converter=printable)


@attrs.frozen(kw_only=True)
class Finding:
    """One thing to say about a file; `line` counts from 1, or is None where no line can be named."""

    path: str
    line: int | None = attrs.field(validator=attrs.validators.optional(attrs.validators.ge(1)))
    code: Code
    message: str = attrs.field(converter=printable)


@attrs.frozen(kw_only=True)
class Function:
    """A function or method: dotted name, the line of its `def`, length in lines, cyclomatic complexity (at least 1)."""

    name: str = attrs.field(converter=printable)
    line: int
    length: int
    complexity: int = attrs.field(validator=attrs.validators.ge(1))


@attrs.frozen(kw_only=True)
class Heading:
    """A Markdown heading: level 1 to 6, its text without markup, its line."""

    level: int
    text: str = attrs.field(converter=printable)
    line: int


@attrs.frozen(kw_only=True)
class Review:
    """What a reader saw in one file.

    The counts are of the whole file, also where the tuples were cut (see `greenroom.demo.review.LIST_LIMIT`).
    Invariant: `function_count >= len(functions)`, `heading_count >= len(headings)`.
    """

    lines: int = 0
    class_count: int = 0
    function_count: int = 0
    heading_count: int = 0
    link_count: int = 0
    functions: tuple[Function, ...] = ()
    headings: tuple[Heading, ...] = ()
    findings: tuple[Finding, ...] = ()


@attrs.frozen(kw_only=True)
class FileRecord:
    """The result for one path; made by the constructors named after its states, so that its fields fit together.

    `kind` and `size` are None for what was skipped; `reason` is set only then; `error` is not empty only for a crash.
    """

    path: str
    status: Status
    kind: Kind | None = None
    size: int | None = None
    reason: SkipReason | None = None
    error: str = attrs.field(default="", converter=printable)
    review: Review = Review()

    @classmethod
    def reviewed(cls, found: Found, review: Review) -> FileRecord:
        """A reader has read the file; what does not parse is a finding of the review."""
        return cls(path=found.path, status=Status.REVIEWED, kind=found.kind, size=found.size, review=review)

    @classmethod
    def not_reviewed(cls, found: Found) -> FileRecord:
        """The desk has no reader for this kind of file."""
        return cls(path=found.path, status=Status.NOT_REVIEWED, kind=found.kind, size=found.size)

    @classmethod
    def skipped(cls, skipped: Skipped) -> FileRecord:
        """Nobody has looked inside; what could not be read is a finding as well, so that it is not lost."""
        findings: tuple[Finding, ...] = ()
        if skipped.reason is SkipReason.UNREADABLE:
            message = f"cannot be read: {skipped.detail or 'no reason given'}"
            findings = (Finding(path=skipped.path, line=None, code=Code.UNREADABLE, message=message),)
        return cls(path=skipped.path, status=Status.SKIPPED, reason=skipped.reason, review=Review(findings=findings))

    @classmethod
    def crashed(cls, found: Found, error: str) -> FileRecord:
        """The file has crashed its readers and is given up.

        Args:
            error: what they died of, as `greenroom.demo.text.stable_error` gives it: findings of two runs are compared.
        """
        said = error or "no error was given"
        finding = Finding(path=found.path, line=None, code=Code.CRASHED, message=f"crashed its readers: {said}")
        return cls(
            path=found.path,
            status=Status.CRASHED,
            kind=found.kind,
            size=found.size,
            error=said,
            review=Review(findings=(finding,)),
        )
