"""What the review of Python source finds."""

from __future__ import annotations

import ast
import textwrap
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.demo.python_source import complexity, functions_of, review
from greenroom.demo.values import Code, Function


def functions_in(source: str) -> tuple[Function, ...]:
    return functions_of(ast.parse(textwrap.dedent(source)))


def complexity_of(body: str) -> int:
    return complexity(ast.parse(textwrap.dedent(body)).body)


def codes(data: bytes) -> list[tuple[Code, int | None]]:
    return [(finding.code, finding.line) for finding in review("a.py", data).findings]


def test_a_function_is_listed_with_its_line_length_and_complexity() -> None:
    source = """\
    x = 1

    @decorated
    def f(a):
        if a:
            return 1

        return 2
    """
    assert functions_in(source) == (Function(name="f", line=4, length=5, complexity=2),)


def test_methods_and_nested_functions_have_dotted_names_in_the_order_of_lines() -> None:
    source = """\
    class A:
        async def b(self):
            def c(): pass
        class D:
            def e(self): pass
    if True:
        def f(): pass
    try:
        pass
    except E:
        def g(): pass
    match 1:
        case 1:
            def h(): pass
    """
    assert [each.name for each in functions_in(source)] == ["A.b", "A.b.c", "A.D.e", "f", "g", "h"]


def test_functions_and_classes_and_lines_are_counted() -> None:
    seen = review("a.py", b"class A:\n    class B: pass\n    def f(self): pass\n")
    assert (seen.lines, seen.class_count, seen.function_count) == (3, 2, 1)


def test_an_empty_file_has_nothing_to_say() -> None:
    seen = review("a.py", b"")
    assert (seen.lines, seen.functions, seen.findings) == (0, (), ())


@pytest.mark.parametrize(
    ("body", "paths"),
    [
        ("pass", 1),
        ("if a: pass", 2),
        ("if a: pass\nelse: pass", 2),
        ("if a: pass\nelif b: pass\nelse: pass", 3),
        ("x = 1 if a else 2", 2),
        ("for x in y: pass\nelse: pass", 2),
        ("async def f():\n    async for x in y: pass", 1),
        ("while a: pass", 2),
        ("try: pass\nexcept A: pass\nexcept B: pass\nelse: pass\nfinally: pass", 3),
        ("try: pass\nexcept* A: pass", 2),
        ("x = a and b and c or d", 4),
        ("x = [y for y in z if a if b]", 4),
        ("x = {y: 1 for y in z for q in y}", 3),
        ("match a:\n    case 1: pass\n    case 2 if b: pass\n    case _: pass", 4),
        ("match a:\n    case x if b: pass", 2),
        ("with a: pass", 1),
        ("assert a", 1),
        ("f = lambda: 1 if a else 2", 2),
        ("class A:\n    if a: pass", 2),
    ],
)
def test_each_decision_adds_a_path(body: str, paths: int) -> None:
    assert complexity_of(body) == paths


def test_the_body_of_a_nested_function_counts_for_itself_alone() -> None:
    source = """\
    def outer():
        def inner():
            if a: pass
            if b: pass
    """
    assert [each.complexity for each in functions_in(source)] == [1, 3]


def test_the_defaults_and_decorators_of_a_nested_function_count_for_the_outer_one() -> None:
    source = """\
    def outer():
        @(a or b)
        def inner(x=1 if c else 2) -> (d and e): pass
    """
    assert [each.complexity for each in functions_in(source)] == [4, 1]


statements = st.recursive(
    st.sampled_from(["pass", "x = a or b", "y = [z for z in w if z]", "assert x"]),
    lambda inner: st.one_of(
        inner.map(lambda body: f"if a:\n{textwrap.indent(body, ' ')}"),
        inner.map(lambda body: f"for a in b:\n{textwrap.indent(body, ' ')}"),
        inner.map(lambda body: f"def f():\n{textwrap.indent(body, ' ')}"),
        st.tuples(inner, inner).map("\n".join),
    ),
    max_leaves=8,
)


@given(statements)
def test_a_condition_around_a_body_adds_exactly_one_path(body: str) -> None:
    assert complexity_of(f"if a:\n{textwrap.indent(body, ' ')}") == complexity_of(body) + 1


@given(statements, statements)
def test_the_paths_of_two_bodies_in_a_row_add_up(first: str, second: str) -> None:
    assert complexity_of(f"{first}\n{second}") - 1 == complexity_of(first) - 1 + complexity_of(second) - 1


@given(statements)
def test_a_part_is_never_more_complex_than_the_whole(body: str) -> None:
    tree = ast.parse(body)
    assert all(complexity([statement]) <= complexity(tree.body) for statement in tree.body)


def test_code_that_does_not_parse_is_a_finding_with_its_line() -> None:
    (finding,) = review("a.py", b"x = 1\nif x\n").findings
    assert (finding.code, finding.line) == (Code.SYNTAX_ERROR, 2)
    assert "expected ':'" in finding.message


def test_wrong_indentation_is_a_finding() -> None:
    assert codes(b"if a:\nb\n") == [(Code.SYNTAX_ERROR, 2)]


def test_an_integer_too_long_for_python_is_a_finding() -> None:
    assert codes(b"\nx = " + b"9" * 5000) == [(Code.SYNTAX_ERROR, 2)]


def test_a_null_byte_is_a_finding_with_its_line() -> None:
    assert codes(b"x = 1\ny = '\0'\n") == [(Code.NULL_BYTE, 2)]


def test_a_byte_that_is_no_utf8_is_a_finding_with_its_line() -> None:
    assert codes(b"# one\n# two\n# three\nx = '\xe9'\n") == [(Code.BAD_ENCODING, 4)]


def test_the_line_of_a_wrong_byte_is_right_after_a_byte_order_mark() -> None:
    assert codes(b"\xef\xbb\xbf# one\n# two\n\xff") == [(Code.BAD_ENCODING, 3)]


def test_a_cookie_names_the_encoding() -> None:
    assert codes("# coding: latin-1\nx = 'é'\n".encode("latin-1")) == []


@pytest.mark.parametrize("cookie", [b"nonsense", b"hex", b"rot13", b"undefined"])
def test_a_cookie_that_names_no_usable_encoding_is_a_finding(cookie: bytes) -> None:
    assert codes(b"# coding: " + cookie + b"\nx = 1\n") == [(Code.BAD_ENCODING, 1)]


def test_a_cookie_against_the_byte_order_mark_is_a_finding() -> None:
    assert codes(b"\xef\xbb\xbf# coding: latin-1\n") == [(Code.BAD_ENCODING, 1)]


def test_a_byte_order_mark_is_fine_in_python() -> None:
    assert codes(b"\xef\xbb\xbfx = 1\n") == []


def test_half_a_surrogate_pair_smuggled_in_is_a_finding() -> None:
    assert codes(b"# coding: utf-7\n\nx = '+2AA-'\n") == [(Code.BAD_ENCODING, 3)]


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_all_three_line_ends_count_alike(newline: bytes) -> None:
    seen = review("a.py", newline.join((b"x = 1", b"def f():", b"    pass", b"")))
    assert (seen.lines, seen.functions[0].line, seen.functions[0].length) == (3, 2, 2)


def test_a_warning_of_the_parser_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert codes(b"x = '\\d'\ny = 1is 1\n") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("source", [b"x = " + b"-" * 100_000 + b"1", b"x = " + b"lambda: " * 100_000 + b"1"])
def test_code_nested_too_deeply_crashes_the_reader(source: bytes) -> None:
    with pytest.raises((RecursionError, MemoryError)):
        review("a.py", source)


def test_a_chain_as_deep_as_the_parser_takes_is_reviewed() -> None:
    source = b"def f():\n    return " + b" + ".join([b"(a or b)"] * 800)
    assert review("a.py", source).functions[0].complexity == 801


@given(st.binary(max_size=60) | st.text("()[]{}:=\n '\"\\#fxi0", max_size=40).map(str.encode))
def test_no_small_file_crashes_the_review_of_python(data: bytes) -> None:
    seen = review("a.py", data)
    assert all(finding.line is None or finding.line >= 1 for finding in seen.findings)
