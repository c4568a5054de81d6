"""MODULE:TREE, and each way in which it can be wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import greenroom as gr
from greenroom.cli.load import NotATree, load
from tests.cli.services import write_service


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules of its own that are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def refusal(target: str) -> str:
    with pytest.raises(NotATree) as caught:
        load(target)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_supervisor_is_found_in_a_module_of_the_current_folder(folder: Path) -> None:
    write_service(folder)
    assert load("service:lasting").name == "lasting"


def test_a_function_is_called_for_its_supervisor(folder: Path) -> None:
    write_service(folder)
    assert load("service:ending").name == "ending"


def test_a_module_may_lie_in_a_package(folder: Path) -> None:
    (folder / "package").mkdir()
    write_service(folder / "package")
    assert load("package.service:lasting").name == "lasting"


def test_a_tree_may_be_an_attribute_of_an_attribute(folder: Path) -> None:
    write_service(folder, "nested", "import greenroom as gr\nclass Trees:\n    main = gr.Supervisor('main')\n")
    assert load("nested:Trees.main").name == "main"


@pytest.mark.parametrize(
    "maker",
    ["gr.DynamicSupervisor('d', gr.Actor)", "gr.PartitionSupervisor('p', gr.Child('c', gr.Actor), partitions=2)"],
)
def test_supervisors_of_every_kind_are_trees(folder: Path, maker: str) -> None:
    write_service(folder, "kinds", f"import greenroom as gr\ntree = {maker}\n")
    assert load("kinds:tree").name in "dp"


@pytest.mark.parametrize("target", ["service", ":tree", "service:", "", ":"])
def test_without_a_module_and_a_tree_the_usage_is_said(target: str) -> None:
    assert refusal(target).endswith("give MODULE:TREE, such as myservice.main:tree")


def test_a_module_that_is_not_there_is_named_with_the_folder(folder: Path) -> None:
    assert refusal("absent:tree") == f"absent:tree: there is no module 'absent' in {folder} or on the Python path"


def test_a_package_that_is_not_there_is_named_for_a_module_in_it() -> None:
    assert "there is no module 'absent'" in refusal("absent.service:tree")


def test_a_module_that_is_not_there_in_a_package_that_is(folder: Path) -> None:
    (folder / "package").mkdir()
    assert "there is no module 'package.absent'" in refusal("package.absent:tree")


def test_a_missing_import_of_the_module_is_its_failure_not_its_absence(folder: Path) -> None:
    write_service(folder, "needy", "import not_installed_anywhere\n")
    said = refusal("needy:tree")
    assert "module 'needy' fails at import: ModuleNotFoundError: No module named 'not_installed_anywhere'" in said


def test_an_error_at_import_is_said_with_its_place(folder: Path) -> None:
    write_service(folder, "broken", "x = 1\ny = x / 0\n")
    assert refusal("broken:tree") == (
        f"broken:tree: module 'broken' fails at import: ZeroDivisionError: division by zero ({folder / 'broken.py'}:2)"
    )


def test_a_module_that_does_not_parse_is_said_with_its_line(folder: Path) -> None:
    write_service(folder, "odd", "def f(:\n")
    assert "module 'odd' fails at import: SyntaxError: invalid syntax (odd.py, line 1)" in refusal("odd:tree")


def test_a_module_that_exits_at_import_does_not_take_the_command_with_it(folder: Path) -> None:
    write_service(folder, "leaving", "raise SystemExit(3)\n")
    assert "fails at import: SystemExit: 3" in refusal("leaving:tree")


def test_an_error_of_many_lines_is_said_in_one(folder: Path) -> None:
    write_service(folder, "wordy", "raise ValueError('one\\n  two')\n")
    assert "ValueError: one two" in refusal("wordy:tree")


def test_an_attribute_that_is_not_there_brings_the_supervisors_that_are(folder: Path) -> None:
    write_service(folder)
    assert (
        refusal("service:tree") == "service:tree: service has no attribute 'tree'; its supervisors are failing, lasting"
    )


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("number", "other:number is an int, not a supervisor; wrap actors in gr.Supervisor(name, ...)"),
        ("child", "other:child is a Child, not a supervisor; wrap actors in gr.Supervisor(name, ...)"),
        ("nothing", "other:nothing is a NoneType, not a supervisor; wrap actors in gr.Supervisor(name, ...)"),
        ("Quiet", "other:Quiet is a class; give a supervisor, or a function that makes one"),
        ("wants", "other:wants has to be callable without arguments (missing a required argument: 'size')"),
        ("fails", "other:fails() fails: KeyError: 'x' ({folder}/other.py:9)"),
        ("later", "other:later is async; a tree is made before the event loop runs: make it a plain `def`"),
    ],
)
def test_what_gives_no_supervisor_is_said(folder: Path, attribute: str, said: str) -> None:
    write_service(
        folder,
        "other",
        "import greenroom as gr\n"
        "class Quiet(gr.Actor): ...\n"
        "number = 3\n"
        "child = gr.Child('a', Quiet)\n"
        "def nothing(): ...\n"
        "def wants(size): ...\n"
        "async def later(): ...\n"
        "def fails():\n"
        "    return {}['x']\n",
    )
    assert refusal(f"other:{attribute}") == f"other:{attribute}: {said.format(folder=folder)}"


def test_a_specification_that_cannot_work_is_said_with_its_own_error(folder: Path) -> None:
    write_service(
        folder, "twice", "import greenroom as gr\nc = gr.Child('a', gr.Actor)\ntree = gr.Supervisor('s', c, c)\n"
    )
    assert "BadSpec: supervisor 's' has two children named 'a'" in refusal("twice:tree")


def test_what_was_refused_is_one_of_our_refusals() -> None:
    assert issubclass(NotATree, gr.Refused)
