"""Headings and dead links of Markdown files."""

from __future__ import annotations

import os
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.demo.markdown import relative_target, review
from greenroom.demo.text import encode_path
from greenroom.demo.values import Code, Heading


def headings(text: str) -> list[tuple[int, str, int]]:
    seen = review("a.md", textwrap.dedent(text).encode(), lambda path: True)
    assert seen.heading_count == len(seen.headings)
    return [(heading.level, heading.text, heading.line) for heading in seen.headings]


def dead_links(text: str, *there: str, path: str = "a.md") -> list[int | None]:
    """The lines of dead links, in a folder that holds only the given paths."""
    seen = review(path, textwrap.dedent(text).encode(), lambda asked: asked in there)
    assert all(finding.code is Code.DEAD_LINK for finding in seen.findings)
    return [finding.line for finding in seen.findings]


def test_headings_of_both_styles_are_listed_with_level_and_line() -> None:
    text = """\
    # One

    Two
    ===

    Three
    ---
    ###### Six ######
    """
    assert headings(text) == [(1, "One", 1), (1, "Two", 3), (2, "Three", 6), (6, "Six", 8)]


def test_what_looks_like_a_heading_in_code_is_none() -> None:
    text = """\
    ```
    # no
    ```
    ~~~ sh
    # no
    ~~~

        # no

    # Yes
    """
    assert headings(text) == [(1, "Yes", 10)]


def test_a_heading_in_a_quote_or_list_counts() -> None:
    assert headings("> # Quoted\n\n- ## Listed\n") == [(1, "Quoted", 1), (2, "Listed", 3)]


def test_the_text_of_a_heading_is_free_of_markup() -> None:
    assert headings("# The `code` of *one* [link](x.md) ![image](y.png) <b>x</b> &amp; \\*\n") == [
        (1, "The code of one link image x & *", 1)
    ]


def test_a_heading_over_two_lines_is_one_text() -> None:
    assert headings("One\ntwo\n===\n") == [(1, "One two", 1)]


def test_an_empty_heading_is_a_heading() -> None:
    assert headings("#\n") == [(1, "", 1)]


def test_front_matter_is_not_a_heading_and_keeps_the_lines() -> None:
    assert headings("---\ntitle: x\n---\n# One\n") == [(1, "One", 4)]


def test_a_rule_at_the_top_without_an_end_is_no_front_matter() -> None:
    assert headings("---\n# One\n") == [(1, "One", 2)]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_all_three_line_ends_count_alike(newline: str) -> None:
    seen = review("a.md", newline.join(("text", "", "# One", "")).encode(), lambda path: True)
    assert (seen.lines, seen.headings) == (3, (Heading(level=1, text="One", line=3),))


def test_a_link_to_what_is_not_there_is_dead_at_its_line() -> None:
    text = """\
    See [this](b.md)
    and [that](gone.md)
    and ![picture](gone.png).
    """
    assert dead_links(text, "b.md") == [2, 3]


def test_the_finding_names_the_link_as_written_and_what_is_missing() -> None:
    (finding,) = review("docs/a.md", b"[x](<../b c.md#part>)", lambda path: False).findings
    assert finding.message == "the link ../b c.md#part leads nowhere: there is no b c.md"


def test_a_link_is_resolved_from_the_folder_of_its_file() -> None:
    assert dead_links("[x](b.md) [y](../c.md) [z](.)", "docs/b.md", "c.md", "docs", path="docs/a.md") == []


def test_a_link_through_a_folder_that_is_not_there_goes_by_name_as_in_a_browser() -> None:
    assert dead_links("[x](none/../b.md)", "b.md") == []


def test_a_link_out_of_the_folder_is_judged_by_what_is_there() -> None:
    assert dead_links("[x](../b.md)\n[y](../c.md)\n", "../b.md") == [2]


def test_a_part_or_query_is_cut_off_before_the_file_is_looked_for() -> None:
    assert dead_links("[x](b.md#part) [y](b.md?raw=1#part)", "b.md") == []


def test_a_percent_encoded_link_is_decoded() -> None:
    assert dead_links("[x](b%20c.md) [y](gr%C3%B6%C3%9Fe.md) [z](größe.md)", "b c.md", "größe.md") == []


def test_a_percent_encoded_name_that_is_no_utf8_is_found() -> None:
    assert dead_links("[x](latin-%E9.md)", os.fsdecode(b"latin-\xe9.md")) == []


def test_a_file_in_a_folder_whose_name_is_no_utf8_has_its_links_judged() -> None:
    folder = os.fsdecode(b"\xe9")
    assert dead_links("[x](b.md)", f"{folder}/b.md", path=encode_path(f"{folder}/a.md")) == []


@pytest.mark.parametrize(
    "link",
    [
        "https://example.org/x.md",
        "HTTP://example.org",
        "mailto:me@example.org",
        "tel:+1",
        "//example.org/x",
        "/from/the/root.md",
        "%2Ffrom/the/root.md",
        "#part",
        "?query",
        "",
        ".greenroom/report.md",
        "sub/.greenroom/report.md",
    ],
)
def test_a_link_that_is_not_relative_is_not_judged(link: str) -> None:
    assert dead_links(f"[x](<{link}>)") == []


def test_a_link_in_code_or_html_is_not_judged() -> None:
    assert dead_links("`[x](gone.md)`\n\n    [x](gone.md)\n\n<a href='gone.md'>x</a>\n\n```\n[x](gone.md)\n```\n") == []


def test_a_reference_is_judged_once_where_it_is_defined() -> None:
    text = """\
    See [one][a], [a], [two][a].

    [a]: gone.md "title"
    [b]: here.md
    [unused]: gone-too.md
    """
    assert dead_links(text, "here.md") == [3, 5]


def test_a_picture_that_is_a_link_has_both_judged() -> None:
    assert dead_links("[![x](gone.png)](gone.md)") == [1, 1]


def test_the_same_dead_link_on_two_lines_is_two_findings() -> None:
    assert dead_links("[x](gone.md)\n[y](gone.md)\n") == [1, 2]


def test_relative_links_are_counted_dead_or_not() -> None:
    seen = review("a.md", b"[x](b.md) [y](gone.md) [z](https://example.org)", lambda path: path == "b.md")
    assert seen.link_count == 2


def test_a_file_that_is_no_utf8_is_a_finding_and_reviewed_as_far_as_it_goes() -> None:
    seen = review("a.md", b"# One\n\nCaf\xe9\n\n# Two\n", lambda path: True)
    assert [(finding.code, finding.line) for finding in seen.findings] == [(Code.BAD_ENCODING, 3)]
    assert seen.heading_count == 2


def test_an_empty_file_has_nothing_to_say() -> None:
    seen = review("a.md", b"", lambda path: False)
    assert (seen.lines, seen.headings, seen.findings) == (0, (), ())


def test_brackets_nested_beyond_reason_do_not_crash_the_review() -> None:
    assert review("a.md", b">" * 2000 + b"- " * 1000 + b"[" * 1000, lambda path: False).findings == ()


names = st.text(st.sampled_from("ab -_.é%"), min_size=1, max_size=8).filter(lambda name: name.strip(".") != "")


@given(st.lists(names, min_size=1, max_size=3).map("/".join))
def test_a_properly_encoded_relative_link_names_its_file(name: str) -> None:
    encoded = "".join(f"%{byte:02X}" if byte > 127 or byte in b"% " else chr(byte) for byte in name.encode())
    assert relative_target(encoded) == name


@given(st.text("#*_-=[]()<>!`~ \n\\&;:abc./", max_size=60), st.booleans())
def test_no_small_file_crashes_the_review_of_markdown(text: str, there: bool) -> None:
    seen = review("a.md", text.encode(), lambda path: there)
    assert all(1 <= heading.line <= seen.lines for heading in seen.headings)
    assert all(finding.line is not None and 1 <= finding.line <= seen.lines for finding in seen.findings)
    assert len(seen.findings) == (0 if there else seen.link_count)
