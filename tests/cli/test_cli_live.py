"""The drawn tree: a pure picture of a snapshot, and the loop around it."""

from __future__ import annotations

import io
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import greenroom as gr
from greenroom.cli.live import draw, picture, rows


def worker(name: str, **fields: Any) -> gr.TreeNode:
    fields = {"state": gr.State.RUNNING, "incarnation": 1, "restarts": 0, "mailbox_capacity": 64, **fields}
    return gr.TreeNode(name=name, path=f"s/{name}", kind="worker", isolation="task", **fields)


def supervisor(name: str, *children: gr.TreeNode, **fields: Any) -> gr.TreeNode:
    fields = {"state": gr.State.RUNNING, "incarnation": 1, "restarts": 0, **fields}
    return gr.TreeNode(name=name, path=name, kind="supervisor", strategy="one_for_one", children=children, **fields)


def shown(tree: gr.TreeNode, width: int = 160, **options: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=50, color_system=None)
    console.print(picture(tree, **options))
    written = console.file
    assert isinstance(written, io.StringIO)
    return [line.rstrip() for line in written.getvalue().splitlines()]


def test_children_hang_below_their_supervisor_in_start_order() -> None:
    tree = supervisor("s", worker("a"), supervisor("t", worker("b"), worker("c")), worker("d"))
    assert [line.partition(" running")[0].rstrip() for line in shown(tree)[1:]] == [
        "s", "├─ a", "├─ t", "│  ├─ b", "│  └─ c", "└─ d",
    ]  # fmt: skip


def test_a_row_tells_state_life_restarts_mailbox_message_in_hand_and_last_error() -> None:
    node = worker(
        "a",
        incarnation=3,
        restarts=2,
        mailbox_depth=7,
        message_type="Read",
        in_hand_for=1.25,
        last_error="error: ValueError: no",
    )
    assert " ".join(shown(supervisor("s", node))[2].split()) == "└─ a running 3 2 7/64 Read 1.2s error: ValueError: no"


def test_an_unbounded_mailbox_has_no_bound_to_show() -> None:
    assert " 5" in shown(supervisor("s", worker("a", mailbox_depth=5, mailbox_capacity=None)))[2]


def test_a_message_just_taken_is_shown_without_a_time() -> None:
    line = shown(supervisor("s", worker("a", message_type="Read", in_hand_for=0.01)))[2]
    assert line.endswith("Read")


@pytest.mark.parametrize("state", gr.State)
def test_every_state_can_be_drawn(state: gr.State) -> None:
    assert state.value in shown(supervisor("s", worker("a", state=state)))[2]


def test_the_header_stands_above_and_the_lines_below() -> None:
    lines = shown(supervisor("s"), header="3 found", lines=("first", "second"))
    assert (lines[0], lines[-2:]) == ("3 found", ["first", "second"])


def test_markup_in_names_and_errors_is_text() -> None:
    line = shown(supervisor("s", worker("[red]a", last_error="[/] KeyError: '[x]'")))[2]
    assert "[red]a" in line
    assert line.endswith("[/] KeyError: '[x]'")


def test_an_error_of_many_lines_and_control_characters_stays_in_its_row() -> None:
    lines = shown(supervisor("s", worker("a", last_error="bad\x1b[2J\rthing\nsecond line")))
    assert len(lines) == 3
    assert lines[2].endswith("bad·[2J·thing")


def test_a_narrow_terminal_gets_no_line_longer_than_itself() -> None:
    tree = supervisor("s", worker("a" * 100, last_error="x" * 300, message_type="M" * 50, in_hand_for=3.0))
    assert all(len(line) <= 60 for line in shown(tree, width=60, header="h" * 100, lines=("l" * 100,)))


def test_what_has_no_room_is_counted() -> None:
    tree = supervisor("s", *(worker(f"w{n}") for n in range(100)))
    lines = shown(tree, limit=10)
    assert len(lines) <= 11
    assert lines[-1].startswith("└─ and 9")
    assert lines[-1].endswith("more")


def test_what_is_most_worth_seeing_keeps_its_line_in_its_place() -> None:
    plain = [worker(f"w{n}") for n in range(50)]
    plain[20] = worker("w20", restarts=4)
    plain[40] = worker("w40", state=gr.State.RESTARTING)
    names = [row.node.name for row in rows(supervisor("s", *plain), 8) if not row.left_out]
    assert names == ["s", "w0", "w1", "w20", "w40"]


nodes = st.recursive(
    st.builds(worker, st.text("abc", min_size=1, max_size=5), restarts=st.integers(0, 3)),
    lambda below: st.lists(below, max_size=6).map(lambda children: supervisor("t", *children)),
    max_leaves=60,
)


@given(st.lists(nodes, max_size=8))
def test_without_a_limit_every_node_has_a_row(children: list[gr.TreeNode]) -> None:
    tree = supervisor("s", *children)
    assert [row.node for row in rows(tree)] == list(tree.walk())


@given(st.lists(nodes, max_size=8), st.integers(1, 40))
def test_rows_and_those_left_out_make_up_all_direct_children(children: list[gr.TreeNode], limit: int) -> None:
    tree = supervisor("s", *children)
    drawn = rows(tree, limit)
    top = [row for row in drawn if not row.left_out and row.guide in ("├─ ", "└─ ")]
    left_out = sum(row.left_out for row in drawn if row.node is tree)
    assert len(top) + left_out == len(children)


@given(st.integers(1, 300), st.integers(3, 60))
def test_a_flat_tree_never_takes_more_rows_than_it_may(count: int, limit: int) -> None:
    assert len(rows(supervisor("s", *(worker(str(n)) for n in range(count))), limit)) <= limit


# ------------------------------------------------------------------------------------------------------ the loop


class Quiet(gr.Actor):
    pass


def screen() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, width=100, height=20, force_terminal=True, color_system=None), written


async def test_the_tree_is_drawn_again_and_again_until_it_is_cancelled() -> None:
    console, written = screen()
    asked = 0

    async def header() -> str:
        nonlocal asked
        asked += 1
        return f"picture {asked}"

    async with gr.Runtime(gr.Supervisor("service", gr.Child("quiet", Quiet))) as runtime:
        with anyio.move_on_after(1.1):
            await draw(runtime, console, header=header, period=0.25)
    assert asked == 5
    assert all(f"picture {n}" in written.getvalue() for n in range(1, 6))
    assert "└─ quiet" in written.getvalue()


async def test_the_last_picture_shows_the_tree_as_it_was_left() -> None:
    @attrs.frozen
    class Die(gr.Message[None]):
        pass

    class Mortal(gr.Actor):
        @gr.handles
        async def die(self, message: Die) -> None:
            raise ValueError("on purpose")

    console, written = screen()
    async with gr.Runtime(gr.Supervisor("service", gr.Child("mortal", Mortal))) as runtime:
        with anyio.move_on_after(0.3):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: draw(runtime, console, period=100.0))
                await anyio.sleep(0.1)
                runtime.ref("service/mortal").tell(Die())
                await anyio.sleep_forever()
    assert written.getvalue().partition("ValueError: on purpose")[1]


async def test_lines_that_come_later_are_drawn_too() -> None:
    console, written = screen()
    lines: list[str] = []
    async with gr.Runtime(gr.Supervisor("service", gr.Child("quiet", Quiet))) as runtime:
        with anyio.move_on_after(0.6):
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: draw(runtime, console, lines=lines, period=0.25))
                await anyio.sleep(0.3)
                lines.append("something happened")
                await anyio.sleep_forever()
    assert "something happened" in written.getvalue()
