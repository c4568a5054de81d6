"""How an actor's class finds its way into another interpreter: by name, as `module:qualname`.

A class from the main program is found as multiprocessing's spawn does it: the worker runs the main file once more, under the name
`__mp_main__`, so that what stands below `if __name__ == "__main__":` is left out.
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any

from attrs import frozen

from greenroom.actors.actor import Actor
from greenroom.codec import import_class

_MAINS = ("__main__", "__mp_main__")


@frozen
class Main:
    """Where the main program's code is: a module's name, or a file's path."""

    module: str | None = None
    file: str | None = None


def main_program() -> Main | None:
    """The main program of this process; None when another interpreter could not load it (interactive, `-c`, a package's `__main__`)."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return None if spec.name.rpartition(".")[2] == "__main__" else Main(module=spec.name)
    file = getattr(main, "__file__", None)
    return Main(file=os.path.abspath(file)) if isinstance(file, str) and os.path.isfile(file) else None


def load_main(main: Main) -> None:
    """Run the main program's code here, under the name `__mp_main__`; it is found as `__main__`, too, from then on."""
    if "__mp_main__" in sys.modules:
        return
    module = types.ModuleType("__mp_main__")
    sys.modules["__mp_main__"] = module
    try:
        if main.module is not None:
            names = runpy.run_module(main.module, run_name="__mp_main__", alter_sys=True)
        else:
            names = runpy.run_path(str(main.file), run_name="__mp_main__")
    except BaseException:
        del sys.modules["__mp_main__"]
        raise
    vars(module).update(names)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def resolver(main: Main | None) -> Callable[[str], type[Any]]:
    """For a worker's codec: finds classes by their tags, and loads the main program when one is from there."""

    def resolve(tag: str) -> type[Any]:
        if main is not None and tag.startswith("__main__:"):
            load_main(main)
        return import_class(tag)

    return resolve


@frozen
class Call:
    """A factory taken apart: what to call, by name, and with what besides the child's own arguments."""

    reference: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


def taken_apart(factory: Callable[..., Any], arguments: tuple[object, ...]) -> Call:
    """What travels to a worker of `factory(*arguments)`; a `functools.partial` is followed inside.

    Raises `ValueError`, with the way out, for what another interpreter could not find by name.
    """
    keywords: dict[str, Any] = {}
    while isinstance(factory, functools.partial):
        arguments = (*factory.args, *arguments)
        keywords = {**factory.keywords, **keywords}
        factory = factory.func
    return Call(_reference(factory), arguments, keywords)


def _reference(factory: Callable[..., Any]) -> str:
    module, qualname = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise ValueError(
            f"{factory!r} has no name by which a process of its own could find it: give an actor class or a function "
            "of a module"
        )
    if "<" in qualname:
        raise ValueError(
            f"{qualname} is defined inside a function, where a process of its own cannot find it: move it to module level"
        )
    home = module
    if module in _MAINS:
        module = "__main__"
        if main_program() is None:
            raise ValueError(
                f"{qualname} belongs to a main program that a process of its own cannot load (an interactive session, "
                "python -c, or a package's __main__): put it into a module"
            )
    reference = f"{module}:{qualname}"
    try:
        # In a worker that is just running the main program's code, that is under its other name only.
        found = located(f"{home}:{qualname}")
    except LookupError as error:
        raise ValueError(f"a process of its own could not find {qualname}: {error}") from None
    if found is not factory and found != factory:
        raise ValueError(
            f"a process of its own would find something else under {reference}: the name must be that of the factory itself"
        )
    return reference


def located(reference: str, main: Main | None = None) -> Any:
    """What `module:qualname` names, importing the module. Raises `LookupError`, or what the module raises when it is imported."""
    module, _, qualname = reference.partition(":")
    if module == "__main__" and main is not None:
        load_main(main)
    try:
        found: Any = sys.modules.get(module) or importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise LookupError(f"there is no module {error.name!r}, which {reference} needs") from error
    for name in qualname.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise LookupError(f"module {module!r} has no {qualname!r}") from None
    return found


def check_handlers(cls: type[Actor]) -> None:
    """Raise `TypeError` for handlers that a process child cannot have."""
    for handler in cls.__handlers__.values():
        if handler.concurrency > 1:
            raise TypeError(
                f"{cls.__qualname__}.{handler.name} has concurrency={handler.concurrency}, but a process child handles one message "
                "at a time: leave it out and start several children, or give the child isolation='task'"
            )
