"""The public face: what `import greenroom` offers, and that all of it is documented and can travel."""

from __future__ import annotations

import ast
import inspect
import pickle
import types
import typing
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import greenroom
from greenroom import errors

PUBLIC = {name: getattr(greenroom, name) for name in greenroom.__all__}
EXCEPTIONS = sorted(name for name, value in PUBLIC.items() if isinstance(value, type) and issubclass(value, Exception))
SOURCE = Path(greenroom.__file__).parent


def test_the_list_of_public_names_is_sorted_and_has_each_once() -> None:
    assert list(greenroom.__all__) == sorted(set(greenroom.__all__))


def test_every_public_name_can_be_imported_and_nothing_else_is_there() -> None:
    there = {
        name for name, value in vars(greenroom).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert there - {"annotations"} == set(greenroom.__all__)


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """What a module imports from greenroom, as (module, name)."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "greenroom":
            yield from ((str(node.module), alias.name) for alias in node.names)


def file_of(module: str) -> Path:
    path = SOURCE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def reachable() -> set[str]:
    """The names out of `errors` that modules import which `import greenroom` leads to, at once or when they are needed."""
    seen, ahead, names = set[str](), ["greenroom"], set[str]()
    while ahead:
        module = ahead.pop()
        if module in seen or not file_of(module).exists():
            continue
        seen.add(module)
        for source, name in imports(file_of(module)):
            ahead += [source, f"{source}.{name}"]
            if source == errors.__name__:
                names.add(name)
    return names


def test_every_exception_that_may_reach_a_user_is_public() -> None:
    exceptions = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }
    assert {"MailboxFull", "WorkerDied"} <= reachable()
    assert exceptions & reachable() <= set(greenroom.__all__)


def test_every_public_exception_but_those_that_users_raise_has_one_root() -> None:
    apart = {name for name in EXCEPTIONS if not issubclass(PUBLIC[name], greenroom.GreenroomError)}
    assert apart == {"Failed", "Ignore", "Rejected", "Stop"}


def test_every_exception_is_in_exactly_one_of_the_four_branches() -> None:
    branches = (greenroom.Misuse, greenroom.Refused, greenroom.Failure, greenroom.Defect)
    inner = [PUBLIC[name] for name in EXCEPTIONS if issubclass(PUBLIC[name], greenroom.GreenroomError)]
    inner.remove(greenroom.GreenroomError)
    assert {error.__name__: sum(issubclass(error, branch) for branch in branches) for error in inner} == {
        error.__name__: 1 for error in inner
    }


@pytest.mark.parametrize("name", greenroom.__all__)
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    value = PUBLIC[name]
    if isinstance(value, type) or inspect.isfunction(value):
        text = vars(value).get("__doc__") if isinstance(value, type) else value.__doc__
        assert text
        assert text.strip()
        assert not text.startswith(f"{name}("), "that is the signature that attrs or dataclasses writes"


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if isinstance(value, type)])
def test_every_public_method_of_a_public_class_has_a_docstring(name: str) -> None:
    cls = PUBLIC[name]
    bare = [
        member
        for member, value in vars(cls).items()
        if not member.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod)))
        and not inspect.getdoc(getattr(cls, member))
    ]
    assert bare == []


def mentioned(annotation: Any) -> Iterator[type]:
    """The classes of greenroom that an annotation mentions."""
    for inner in typing.get_args(annotation):
        yield from mentioned(inner)
    if isinstance(annotation, list):
        for inner in annotation:
            yield from mentioned(inner)
    plain = typing.get_origin(annotation) or annotation
    if isinstance(plain, type) and plain.__module__.partition(".")[0] == "greenroom":
        yield plain


def signatures(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class. Constructors apart: of some classes only Greenroom makes instances."""
    for member, value in vars(cls).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if isinstance(function, types.FunctionType) and not member.startswith("_"):
            yield member, function


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if isinstance(value, type)])
def test_a_public_signature_mentions_public_classes_only(name: str) -> None:
    private = set()
    for member, function in signatures(PUBLIC[name]):
        own = "For Greenroom's own use" in (function.__doc__ or "")
        hints = {} if own else typing.get_type_hints(function, localns=CHECKER_ONLY)
        for annotation in hints.values():
            private |= {f"{member}: {cls.__name__}" for cls in mentioned(annotation) if cls not in PUBLIC.values()}
    assert private == set()


CHECKER_ONLY = {**vars(greenroom), "datetime": datetime}
"""Names that modules import for the type checker only."""


# ------------------------------------------------------------------------------------------------------- exceptions

EXAMPLES: dict[object, object] = {
    str: "app/a", int: 2, float: 1.5, tuple[str, ...]: ("One", "Two"), bool: True, (int | None): 7, (float | None): 0.5, (str | None): "text",
    (errors.RemoteError | None): None, tuple[errors.RemoteError, ...]: (), object: "anything",
}  # fmt: skip


def example(cls: type[BaseException]) -> BaseException:
    """An instance, its fields filled by their types."""
    if cls.__init__ in (Exception.__init__, BaseException.__init__) or "__init__" not in vars(cls):
        base = next((base for base in cls.__mro__ if "__init__" in vars(base)), Exception)
        if not base.__module__.startswith("greenroom"):
            return cls("a message")
    hints = typing.get_type_hints(cls.__init__)
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    positional = [EXAMPLES[hints[one.name]] for one in parameters if one.kind is not one.KEYWORD_ONLY]
    keywords = {one.name: EXAMPLES[hints[one.name]] for one in parameters if one.kind is one.KEYWORD_ONLY}
    return cls(*positional, **keywords)


@pytest.mark.parametrize("name", EXCEPTIONS)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_public_exception_survives_pickling_with_its_text_and_fields(name: str, protocol: int) -> None:
    error = example(PUBLIC[name])
    error.add_note("a note")
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_every_public_exception_says_something(name: str) -> None:
    assert str(example(PUBLIC[name])).strip()


# ----------------------------------------------------------------------------------------------------- what is never used

NEVER = {
    "PyThreadState_SetAsyncExc": "it cannot interrupt what blocks, and corrupts what it can",
    "create_task": "a detached asyncio task outlives the tree unnoticed",
    "ensure_future": "a detached asyncio task outlives the tree unnoticed",
    "spawn_system_task": "a trio system task outlives the tree unnoticed",
    "throw": "to throw into a running task corrupts both loops",
}


GROUPS = ("self", "group")
"""Whose `create_task` waits for the task: those of an `asyncio.TaskGroup`."""


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_p10_what_corrupts_event_loops_or_leaves_tasks_behind_is_never_used(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and not (node.attr == "create_task" and ast.unparse(node.value) in GROUPS)
    }
    used |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert {name: NEVER[name] for name in used & NEVER.keys()} == {}
