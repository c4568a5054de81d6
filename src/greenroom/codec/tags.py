"""The names that types have in data, and how a class is found again by its name.

By default a class is called `module:qualname`. A class that may be renamed or moved can be given a tag that stays, and
the tags it once had, with `wire`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs

Resolver: TypeAlias = Callable[[str], type[Any]]
"""Finds the class of an unknown tag, or raises an exception whose text says why not."""

C = TypeVar("C", bound=type[Any])

_DECLARED = "__greenroom_wire__"


@attrs.frozen(kw_only=True)
class Wire:
    """What a class says about its place in data."""

    tag: str | None = None
    aliases: tuple[str, ...] = ()
    retired: frozenset[str] = frozenset()


def wire(tag: str | None = None, *, aliases: Iterable[str] = (), retired: Iterable[str] = ()) -> Callable[[C], C]:
    """Decorate an attrs or Enum class with what data should call it.

    Args:
        tag: its name in data from now on. None: `module:qualname`. With a tag of its own, the class may be renamed and
            moved; data that names it by its present `module:qualname` is still understood.
        aliases: names that older data has for it (`"shop.old:Order"`).
        retired: fields that it once had; in older data they are ignored. Any other unknown field is refused.

    It holds for this class alone; subclasses have their own name.
    """
    declared = Wire(tag=tag, aliases=tuple(aliases), retired=frozenset(retired))

    def decorate(cls: C) -> C:
        setattr(cls, _DECLARED, declared)
        return cls

    return decorate


def declared(cls: type[Any]) -> Wire:
    found = cls.__dict__.get(_DECLARED)
    return found if isinstance(found, Wire) else Wire()


def default_tag(cls: type[Any]) -> str:
    # multiprocessing loads the parent's __main__ under the name __mp_main__: it is the same class to both sides.
    module = "__main__" if cls.__module__ == "__mp_main__" else cls.__module__
    return f"{module}:{cls.__qualname__}"


def same_name(one: type[Any], other: type[Any]) -> bool:
    """Whether they are two makings of one class: attrs makes a slotted class twice, a reload makes it anew (P24)."""
    return default_tag(one) == default_tag(other)


def import_class(tag: str) -> type[Any]:
    """The class called `module:qualname`, importing its module: a resolver for `Codec(resolve=import_class)`.

    Importing a module runs it, and data then says which: use it only between a process and the worker it started.

    Raises:
        LookupError: the tag is no such name; the class is local to a function; it belongs to a `__main__` that another
            process could not load; or there is nothing of that name. The text says the way out.
        Exception: whatever the module raised when it was imported.
    """
    module_name, colon, qualname = tag.partition(":")
    if "<locals>" in qualname:
        raise LookupError(
            f"{tag} is defined inside a function, where no other process can find it: move it to module level"
        )
    names = qualname.split(".")
    if not colon or not all(name.isidentifier() for name in (*module_name.split("."), *names)):
        raise LookupError(f"{tag!r} is not of the form 'module:qualname'")
    loaded_as = module_name
    if module_name == "__main__":
        _require_loadable_main(tag)
        if "__mp_main__" in sys.modules:  # where it is being loaded just now, only this name is the program's
            loaded_as = "__mp_main__"
    try:
        found: Any = sys.modules.get(loaded_as) or importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise LookupError(f"there is no module {error.name!r}, which {tag} needs") from error
    for name in names:
        try:
            found = getattr(found, name)
        except AttributeError:
            renamed = f'if the class was renamed, give its new self @wire(aliases=["{tag}"]) and register it'
            moved = "it was the main file of another program: move the class to a module, which both import; or "
            raise LookupError(
                f"module {module_name!r} has no {qualname!r}: {moved if module_name == '__main__' else ''}{renamed}"
            ) from None
    if not isinstance(found, type):
        raise LookupError(f"{tag} is not a class")
    return found


def _require_loadable_main(tag: str) -> None:
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if getattr(main, "__spec__", None) is None and not (file and Path(file).is_file()):
        raise LookupError(
            f"{tag} belongs to a session that has no file (interactive, or python -c), which no other process can "
            "load: put the class into a module"
        )
