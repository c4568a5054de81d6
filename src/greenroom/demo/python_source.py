"""Review a Python source file: its functions, their lengths and complexity, or why it does not parse."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterable, Iterator

from greenroom.demo.text import count_lines
from greenroom.demo.values import Code, Finding, Function, Review

_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_Statement = ast.stmt | ast.excepthandler | ast.match_case


def review(path: str, data: bytes) -> Review:
    """Review one source file.

    The bytes are decoded as `tokenize.open` does: a byte order mark, else the encoding cookie, else UTF-8; then each of
    the three line ends is a newline. What does not decode or parse is a finding with its line. Warnings of the parser
    (an invalid escape) print nothing; to silence them the process's warning filters are changed for the moment of the
    parse, so a process should parse in one thread at a time.

    Raises:
        RecursionError, MemoryError: from the parser, for code nested deeper than it can follow. They are not caught
            here: the reader crashes, its supervisor starts it again, and the intake gives the file up after two.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        decoded = _decode(path, data)
        if isinstance(decoded, Finding):
            return Review(lines=count_lines(data.decode("latin-1")), findings=(decoded,))
        return _parse(path, decoded)


def _parse(path: str, text: str) -> Review:
    lines = count_lines(text)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        where = f" (column {error.offset})" if error.offset else ""
        finding = Finding(path=path, line=error.lineno or None, code=Code.SYNTAX_ERROR, message=f"{error.msg}{where}")
        return Review(lines=lines, findings=(finding,))
    except UnicodeEncodeError as error:  # an encoding such as utf-7 can smuggle in halves of characters
        line = text.count("\n", 0, error.start) + 1
        finding = Finding(path=path, line=line, code=Code.BAD_ENCODING, message="half a surrogate pair in the source")
        return Review(lines=lines, findings=(finding,))
    functions = functions_of(tree)
    classes = sum(isinstance(scope, ast.ClassDef) for _, scope in _scopes(tree))
    return Review(lines=lines, class_count=classes, function_count=len(functions), functions=functions)


def functions_of(tree: ast.Module) -> tuple[Function, ...]:
    """List every function and method, nested ones too, in the order of their lines; lambdas are not functions here."""
    found = [
        Function(
            name=name,
            line=node.lineno,
            length=(node.end_lineno or node.lineno) - node.lineno + 1,
            complexity=complexity(node.body),
        )
        for name, node in _scopes(tree)
        if isinstance(node, _Definition)
    ]
    return tuple(sorted(found, key=lambda function: (function.line, function.name)))


def complexity(body: Iterable[ast.stmt]) -> int:
    """Count the cyclomatic complexity of a function's body: one path, and one more for each decision.

    Decisions are: `if`, `elif` and the conditional expression; `for` and `while`; each `except`; each `for` and `if` of
    a comprehension; each operand of `and` and `or` after the first; each `case` but a bare name or `_`, and its guard.
    `else`, `finally`, `with` and `assert` decide nothing. A function inside the body is one of its own and counts for
    itself, only its decorators, defaults and annotations are the outer one's; a lambda is part of where it stands.
    """
    total = 1
    pending: list[ast.AST] = list(body)
    while pending:  # a stack, not recursion: a long chain of `+` is deep, and the parser has taken it
        node = pending.pop()
        total += _decisions(node)
        pending.extend(_children_in_scope(node))
    return total


def _decisions(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler():
            return 1
        case ast.comprehension(ifs=conditions):
            return 1 + len(conditions)
        case ast.BoolOp(values=operands):
            return len(operands) - 1
        case ast.match_case(pattern=pattern, guard=guard):
            takes_anything = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
            return int(not takes_anything) + int(guard is not None)
        case _:
            return 0


def _children_in_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Give the children that belong to the same function as the node: all, but for the body of a nested function."""
    if isinstance(node, _Definition):
        yield from node.decorator_list
        yield node.args
        if node.returns is not None:
            yield node.returns
    else:
        yield from ast.iter_child_nodes(node)


def _scopes(tree: ast.Module) -> Iterator[tuple[str, _Scope]]:
    """Give each function and class with its dotted name; only statements are entered, no expression holds one."""
    pending: list[tuple[str, ast.AST]] = [("", tree)]
    while pending:
        prefix, node = pending.pop()
        if isinstance(node, _Scope):
            name = f"{prefix}{node.name}"
            yield name, node
            prefix = f"{name}."
        pending.extend((prefix, child) for child in ast.iter_child_nodes(node) if isinstance(child, _Statement))


def _decode(path: str, data: bytes) -> str | Finding:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    except SyntaxError as error:
        return Finding(path=path, line=1, code=Code.BAD_ENCODING, message=str(error.msg))
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1  # its place counts from behind a byte order mark
        message = f"byte 0x{error.object[error.start]:02x} is not valid {encoding}; name the encoding in the first line"
        return Finding(path=path, line=line, code=Code.BAD_ENCODING, message=message)
    except (UnicodeError, LookupError):  # the cookie names something that is no encoding of text, such as hex
        return Finding(path=path, line=1, code=Code.BAD_ENCODING, message=f"cannot be decoded as {encoding}")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    null = text.find("\0")
    if null >= 0:
        line = text.count("\n", 0, null) + 1
        return Finding(path=path, line=line, code=Code.NULL_BYTE, message="a null byte; this is no Python source")
    return text
