"""What the documentation shows, works: its programs print what they say, its names exist, its links lead somewhere."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.main import get_command

import greenroom as gr
import greenroom.testing
from greenroom.cli.main import app
from greenroom.testing import VirtualClock
from greenroom.testing.virtual_clock import Backend
from tests.docs.pages import GUIDES, PAGES, ROOT, Block, anchors, blocks, code_spans, links

BLOCKS = [block for page in PAGES for block in blocks(page)]
PROGRAMS = [block for block in BLOCKS if block.is_program]
SCRIPTS = [block for block in BLOCKS if block.is_script]
TESTED = [page for page in PAGES if any((block.file or "").startswith("test_") for block in blocks(page))]


def load(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A block as a module in a file, so that other processes find it, too."""
    name = f"docs_{block.page.stem}_{block.line}".replace("-", "_")
    file = folder / f"{name}.py"
    file.write_text(block.module, encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder))
    spec = util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------------------------- programs


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_of_python_compiles(block: Block) -> None:
    compile(block.source, block.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: block.name)
def test_a_program_prints_what_it_says(
    block: Block,
    backend: Backend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    module = load(block, tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    VirtualClock().run(module.main, backend=backend)
    assert capsys.readouterr().out.splitlines() == block.said_output
    assert block.said_output


@pytest.mark.parametrize("block", SCRIPTS, ids=lambda block: block.name)
def test_a_script_prints_what_it_says(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load(block, tmp_path, monkeypatch)
    assert capsys.readouterr().out.splitlines() == block.said_output
    assert block.said_output


@pytest.mark.parametrize("page", TESTED, ids=lambda page: page.name)
def test_the_tests_that_a_page_shows_pass_in_a_project_of_their_own(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.source, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)
    assert "skipped" not in done.stdout


def test_the_service_on_the_operations_page_writes_the_lines_that_it_says(tmp_path: Path) -> None:
    page = ROOT / "docs" / "operations.md"
    (service,) = (block for block in blocks(page) if block.file == "service.py")
    (said,) = blocks(page, "text")
    (tmp_path / "service.py").write_text(service.source, encoding="utf-8")
    command = [sys.executable, "-m", "greenroom.cli", "run", "service:tree"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    written = re.sub(r"^time=\S+ ", "", done.stderr.replace(f"{tmp_path}/", ""), flags=re.MULTILINE)
    assert written.splitlines() == said.source.splitlines()
    assert done.returncode == 1


# ------------------------------------------------------------------------------------------------------- names

OBJECTS: dict[str, object] = {
    "gr": gr,
    "greenroom": gr,
    "context": gr.Context,
    "self.context": gr.Context,
    "runtime": gr.Runtime,
    "ref": gr.Ref,
    "client": gr.Client,
    "clock": VirtualClock,
    "report": gr.ShutdownReport,
    "exit": gr.Exit,
}
"""What a name at the beginning of a piece of code stands for in the prose."""

DOTTED = re.compile(r"(?<![\w./`'\"-])((?:self\.)?[A-Za-z]\w*)((?:\.[A-Za-z_]\w*)+)")
ELSEWHERE = {
    "greenroom.supervisor",
    "greenroom.runtime",
    "greenroom.actors",
    "greenroom.events",
    "greenroom.dead_letters",
}
"""The names of loggers, and of the packages that they are named after."""


def has(thing: Any, name: str) -> bool:
    """Is it an attribute, also one that instances only have?"""
    classes = thing.__mro__ if isinstance(thing, type) else ()
    annotated = any(name in getattr(cls, "__annotations__", {}) for cls in classes)
    assigned = any(f"self.{name} = " in inspect.getsource(cls) for cls in classes if cls.__module__ != "builtins")
    return hasattr(thing, name) or annotated or assigned


def missing_names(code: str) -> Iterator[str]:
    """Names of ours that a piece of code mentions and that do not exist."""
    for first, rest in DOTTED.findall(code):
        if first not in OBJECTS or f"{first}{rest}" in ELSEWHERE:
            continue
        thing: Any = OBJECTS[first]
        for name in rest.split(".")[1:]:
            if first == "greenroom" and name in ("testing", "codec", "cli"):
                thing = __import__(f"greenroom.{name}", fromlist=["*"])
                continue
            if not has(thing, name) or (thing is gr and name not in gr.__all__):
                yield f"{first}{rest}"
                break
            thing = getattr(thing, name, None)
            if isinstance(thing, property):
                thing = inspect.signature(thing.fget).return_annotation if thing.fget else None  # a name only
            if not isinstance(thing, type):
                break


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_names_that_a_page_mentions_exist(page: Path) -> None:
    written = [*code_spans(page), *(block.source for block in blocks(page))]
    assert [name for code in written for name in missing_names(code)] == []


def test_a_name_that_does_not_exist_is_found() -> None:
    written = "gr.Nothing gr.Child gr.Exit.clean gr.Exit.dirty self.context.afterwards(1) runtime.tree() ref.shout()"
    assert list(missing_names(written)) == ["gr.Nothing", "gr.Exit.dirty", "self.context.afterwards", "ref.shout"]


def classes_of(page: Path) -> set[str]:
    """Classes that the page defines or imports in its own programs."""
    nodes = (node for block in blocks(page) for node in ast.walk(compile_tree(block)))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found.update(alias.name for alias in node.names)
    return found


def compile_tree(block: Block) -> ast.AST:
    return ast.parse(block.source)


@pytest.mark.parametrize("page", [page for page in GUIDES if page.stem != "coming-from"], ids=lambda page: page.name)
def test_a_class_that_a_guide_names_is_public_or_from_its_own_programs(page: Path) -> None:
    ours = {*gr.__all__, *greenroom.testing.__all__, *dir(builtins), *dir(greenroom.codec)}
    named = {code for code in code_spans(page) if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", code)}
    assert named - ours - classes_of(page) - INSIDE.get(page.stem, set()) == set()


INSIDE: dict[str, set[str]] = {
    "design": {
        *("MemoryMailbox", "MessageLoop", "AskDeadlines", "ActorLife"),
        *(
            "PersistentQueue",
            "StoreThread",
            "AcceptMessage",
            "FinishDelivery",
            "ReleaseLost",
            "SubmitTask",
            "CommitTurn",
        ),
    }
}
"""Names from the inside, on the page that is about the inside."""


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_a_block_calls_what_is_public_with_arguments_that_it_has(block: Block) -> None:
    for node in ast.walk(compile_tree(block)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "gr"):
            continue
        called = getattr(gr, node.func.attr)
        if isinstance(called, type) and issubclass(called, Exception):  # not all of them have a signature
            continue
        parameters = inspect.signature(called).parameters
        assert {keyword.arg for keyword in node.keywords if keyword.arg} <= set(parameters), ast.unparse(node)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_options_that_a_page_shows_exist(page: Path) -> None:
    options = dict(commands(get_command(app)))
    names = "|".join(sorted(options, key=len, reverse=True))
    for line in page.read_text(encoding="utf-8").splitlines():
        for name, used in re.findall(rf"greenroom ({names})((?: [^\s`|;&#]+)*)", line):
            assert set(re.findall(r"(?<= )--[a-z-]+", used)) <= options[name], line


def commands(command: Any, name: str = "") -> Iterator[tuple[str, set[str]]]:
    """Each command with its options, also those that belong to a group (`store check`)."""
    inner = getattr(command, "commands", {})
    for each in inner:
        yield from commands(inner[each], f"{name} {each}".strip())
    if not inner:
        yield name, {option for parameter in command.params for option in parameter.opts} | {"--help"}


# ------------------------------------------------------------------------------------------------------- links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    lost = []
    for target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            lost.append(target)
    assert lost == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_page_is_reached_from_the_readme(page: Path) -> None:
    assert f"docs/{page.name}" in links(ROOT / "README.md")
