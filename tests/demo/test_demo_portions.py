"""How the work list is cut into portions: a pure rule."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.codec import Codec
from greenroom.demo.messages import Keep, Portion
from greenroom.demo.portions import PORTION, PORTION_WEIGHT, in_portions, weight
from greenroom.demo.review import PATHS_LIMIT, limited, needs_isolation, review
from greenroom.demo.values import Code, FileRecord, Finding, Found, Kind, Review, Skipped, SkipReason
from greenroom.persistence import HARD_LIMIT

paths = st.text(string.ascii_lowercase + "/", min_size=1, max_size=300)
found = st.builds(
    lambda path, kind, size: Found(path=path, kind=kind, size=size),
    paths,
    st.sampled_from(Kind),
    st.one_of(st.integers(0, 10_000), st.integers(0, 5_000_000)),
)
skipped = st.builds(lambda path: Skipped(path=path, reason=SkipReason.CACHE), paths)
walks = st.lists(st.one_of(found, skipped), max_size=200, unique_by=lambda item: item.path)


@given(walks)
def test_every_entry_is_in_one_portion(walk: list[Found | Skipped]) -> None:
    entries = [item for portion in in_portions(walk) for item in portion.items]
    assert sorted(entries, key=lambda item: item.path) == sorted(walk, key=lambda item: item.path)


@given(walks)
def test_large_files_are_apart_from_the_rest(walk: list[Found | Skipped]) -> None:
    for portion in in_portions(walk):
        assert {isinstance(item, Found) and needs_isolation(item) for item in portion.items} == {portion.is_large}


@given(walks)
def test_a_portion_is_no_larger_than_a_transaction_should_be(walk: list[Found | Skipped]) -> None:
    for portion in in_portions(walk):
        assert 1 <= len(portion.items) <= PORTION
        assert len(portion.items) == 1 or sum(map(weight, portion.items)) <= PORTION_WEIGHT


@given(walks)
def test_the_same_walk_gives_the_same_portions(walk: list[Found | Skipped]) -> None:
    assert list(in_portions(walk)) == list(in_portions(iter(walk)))


@given(walks)
def test_the_key_of_a_portion_stands_for_its_content(walk: list[Found | Skipped]) -> None:
    portions = list(in_portions(walk))
    assert len({portion.key for portion in portions}) == len(portions)


def test_a_file_that_has_changed_makes_another_portion() -> None:
    first, second = (Portion((Found(path="a.py", kind=Kind.PYTHON, size=size),)) for size in (1, 2))
    assert first.key != second.key


@given(walks)
def test_a_portion_comes_out_of_the_store_as_it_went_in(walk: list[Found | Skipped]) -> None:
    codec = Codec()
    codec.register(Portion)
    for portion in in_portions(walk):
        assert codec.decode(codec.encode(portion), source="a test") == portion


# ---------------------------------------------------------------------- what the results of a portion come to

LONG = "d/" * 2_000 + "a"


def size_of(records: list[FileRecord]) -> int:
    codec = Codec()
    codec.register(Keep)
    return len(codec.encode(Keep(tuple(records))))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (Kind.MARKDOWN, "# x\n"),
        (Kind.MARKDOWN, "[](x)\n"),
        (Kind.MARKDOWN, "# " + "\N{GRINNING FACE}" * 300 + "\n"),
        (Kind.JSON, '"\N{GRINNING FACE}":0,'),
        (Kind.PYTHON, "def f():0\n"),
    ],
)
@pytest.mark.parametrize("size", [1_000, 20_000, 60_000])
@pytest.mark.parametrize("path", ["a", LONG])
def test_the_results_of_a_hostile_portion_fit_in_one_message(kind: Kind, content: str, size: int, path: str) -> None:
    text = content * (size // len(content.encode()))
    data = (f'{{{text}"":0}}' if kind is Kind.JSON else text).encode()
    files = [Found(path=f"{path}{n}", kind=kind, size=len(data)) for n in range(PORTION)]
    count = len(next(in_portions(files)).items)
    records = [FileRecord.reviewed(item, review(item, data, lambda path: False)) for item in files[:count]]
    assert size_of(records) < HARD_LIMIT


def test_the_names_of_functions_are_cut_as_messages_are() -> None:
    depth = 40
    text = "".join(f"{' ' * n}class {'C' * 100}{n}:\n" for n in range(depth)) + " " * depth + "def f(): pass\n"
    seen = review(Found(path="a.py", kind=Kind.PYTHON, size=1), text.encode(), lambda path: True)
    (function,) = seen.functions
    assert len(function.name) == 300


def test_a_long_path_leaves_room_for_fewer_findings() -> None:
    count = PATHS_LIMIT // len(LONG)
    finding = Finding(path=LONG, line=1, code=Code.DEAD_LINK, message="x")
    seen = limited(LONG, Review(findings=(finding,) * (count + 1)))
    assert [each.code for each in seen.findings] == [Code.DEAD_LINK] * count + [Code.LIST_CUT]
    assert seen.findings[-1].message == f"{count} of {count + 1} findings are listed"
