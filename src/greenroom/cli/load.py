"""Find the tree that `MODULE:TREE` names, or say in one line what is wrong with it."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback

from greenroom.errors import Refused
from greenroom.supervisors import SupervisorSpec

_USAGE = "give MODULE:TREE, such as myservice.main:tree"


class NotATree(Refused):
    """`MODULE:TREE` does not lead to a supervisor. The message is one line; `target` is what was asked for."""

    def __init__(self, target: str, why: str) -> None:
        self.target, self.why = target, why
        super().__init__(f"{target}: {why}")


def load(target: str) -> SupervisorSpec:
    """Import MODULE, also from the current directory, and get TREE: a supervisor, or a function without arguments that gives one.

    Raises:
        NotATree: names which step failed, and with what.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise NotATree(target, _USAGE)
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    value = _module(target, module_name)
    reached = module_name
    for step in attribute.split("."):
        try:
            value = getattr(value, step)
        except AttributeError:
            raise NotATree(target, f"{reached} has no attribute {step!r}{_near(value)}") from None
        reached = f"{reached}:{step}" if ":" not in reached else f"{reached}.{step}"
    if callable(value) and not isinstance(value, SupervisorSpec):
        value = _called(target, reached, value)
    if not isinstance(value, SupervisorSpec):
        raise NotATree(
            target, f"{reached} is {_article(value)}, not a supervisor; wrap actors in gr.Supervisor(name, ...)"
        )
    return value


def _module(target: str, name: str) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise NotATree(
                target, f"there is no module {error.name!r} in {os.getcwd()} or on the Python path"
            ) from None
        raise NotATree(target, _failed(f"module {name!r} fails at import", error)) from error
    except (Exception, SystemExit) as error:  # whatever somebody's module raises
        raise NotATree(target, _failed(f"module {name!r} fails at import", error)) from error


def _called(target: str, name: str, function: object) -> object:
    if isinstance(function, type):
        raise NotATree(target, f"{name} is a class; give a supervisor, or a function that makes one")
    try:
        inspect.signature(function).bind()  # type: ignore[arg-type]
    except TypeError as error:
        raise NotATree(target, f"{name} has to be callable without arguments ({error})") from None
    except ValueError:
        pass  # a builtin without a signature: calling it will tell
    try:
        value = function()  # type: ignore[operator]
    except (Exception, SystemExit) as error:  # whatever somebody's function raises
        raise NotATree(target, _failed(f"{name}() fails", error)) from error
    if inspect.iscoroutine(value):
        value.close()
        raise NotATree(target, f"{name} is async; a tree is made before the event loop runs: make it a plain `def`")
    return value


def _failed(what: str, error: BaseException) -> str:
    """One line for an error of somebody else's code, with the place that raised it."""
    said = " ".join(str(error).split())
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames and not isinstance(error, SyntaxError) else ""
    return f"{what}: {type(error).__name__}{': ' if said else ''}{said}{place}"


def _near(value: object) -> str:
    names = (
        [name for name, each in vars(value).items() if isinstance(each, SupervisorSpec)]
        if hasattr(value, "__dict__")
        else []
    )
    return f"; its supervisors are {', '.join(sorted(names))}" if names else ""


def _article(value: object) -> str:
    name = type(value).__qualname__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
