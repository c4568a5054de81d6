"""Process children: what cannot run in a process of its own is refused when its specification is built."""

from __future__ import annotations

import importlib.machinery
import sys
import threading
import types
from functools import partial
from typing import Any

import pykka
import pytest

import greenroom as gr
from greenroom.actors.processes.references import Call, located, taken_apart
from tests.isolation import workers
from tests.isolation.workers import Crowded, Described, PlainPuppet, Puppet


class PykkaActor(pykka.ThreadingActor):
    """An existing one."""


def lambda_factory() -> Any:
    return lambda: Puppet()  # noqa: PLW0108 - a lambda is what is asked for


def test_p27_a_class_inside_a_function_is_refused_with_the_way_out() -> None:
    class Local(gr.Actor): ...

    with pytest.raises(gr.BadSpec, match=r"child 'a': .*Local is defined inside a function.*move it to module level"):
        gr.Child("a", Local, isolation="process")


def test_p27_a_lambda_is_refused_with_the_way_out() -> None:
    with pytest.raises(gr.BadSpec, match=r"child 'a': .*move it to module level"):
        gr.Child("a", lambda_factory(), isolation="process")


def test_p27_a_local_class_inside_a_partial_is_refused() -> None:
    class Local(gr.Actor):
        def __init__(self, number: int) -> None: ...

    with pytest.raises(gr.BadSpec, match="move it to module level"):
        gr.Child("a", partial(Local, 1), isolation="process")


def test_p27_a_class_that_is_not_what_its_name_says_is_refused() -> None:
    impostor = type("Puppet", (gr.Actor,), {"__module__": workers.__name__})
    with pytest.raises(gr.BadSpec, match=r"would find something else under tests\.isolation\.workers:Puppet"):
        gr.Child("a", impostor, isolation="process")


def test_p27_a_callable_without_a_name_is_refused() -> None:
    class Maker:
        def __call__(self) -> Puppet:
            return Puppet()

    with pytest.raises(gr.BadSpec, match="has no name by which a process of its own could find it"):
        gr.Child("a", Maker(), isolation="process")


def test_p27_a_class_whose_module_cannot_be_imported_is_refused() -> None:
    lost = type("Lost", (gr.Actor,), {"__module__": "no.such.module", "__qualname__": "Lost"})
    with pytest.raises(gr.BadSpec, match="there is no module"):
        gr.Child("a", lost, isolation="process")


def test_p27_a_package_that_is_run_cannot_be_loaded_once_more_and_its_classes_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = types.ModuleType("__main__")
    main.__spec__ = importlib.machinery.ModuleSpec("package.__main__", None)
    of_main = type("OfMain", (gr.Actor,), {"__module__": "__main__", "__qualname__": "OfMain"})
    main.OfMain = of_main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    with pytest.raises(gr.BadSpec, match="OfMain belongs to a main program that a process of its own cannot load"):
        gr.Child("a", of_main, isolation="process")


@pytest.mark.parametrize(
    ("factory", "args", "name"),
    [
        (Described, (1, threading.Lock()), "argument 2"),
        (partial(Described, threading.Lock()), (1,), "argument 1"),
        (partial(Described, key=threading.Lock()), (), "key"),
    ],
)
def test_p28_an_argument_that_cannot_be_encoded_is_refused_by_its_name(
    factory: Any, args: tuple[object, ...], name: str
) -> None:
    with pytest.raises(gr.BadSpec, match=f"child 'a': {name} cannot get into another process: .*lock"):
        gr.Child("a", factory, *args, isolation="process")


def test_p25_concurrent_handlers_are_refused_in_a_process() -> None:
    with pytest.raises(gr.BadSpec, match=r"Crowded\.handle has concurrency=2.*start several children"):
        gr.Child("a", Crowded, isolation="process")


def test_p25_a_pykka_class_is_refused_in_a_process() -> None:
    with pytest.raises(gr.BadSpec, match="give it isolation='thread'"):
        gr.Child("a", PykkaActor, isolation="process")


@pytest.mark.parametrize("factory", [Puppet, PlainPuppet, workers.made_by_a_function, partial(Puppet)])
def test_p25_both_kinds_of_handlers_and_functions_may_be_chosen_for_a_process(factory: Any) -> None:
    assert gr.Child("a", factory, isolation="process").isolation == "process"


@pytest.mark.parametrize("isolation", ["task", "thread"])
def test_a_memory_limit_without_memory_of_its_own_is_refused(isolation: Any) -> None:
    cls = PlainPuppet if isolation == "thread" else Puppet
    with pytest.raises(gr.BadSpec, match="only a process has memory of its own"):
        gr.Child("a", cls, isolation=isolation, memory_limit=1 << 30)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "1G"])
def test_a_memory_limit_that_is_no_number_of_bytes_is_refused(limit: Any) -> None:
    with pytest.raises(gr.BadSpec, match="a whole number of bytes above 0"):
        gr.Child("a", Puppet, isolation="process", memory_limit=limit)


def test_partials_are_taken_apart_as_they_would_be_called() -> None:
    factory = partial(partial(Described, 1, a="inner", b="inner"), 2, a="outer")
    call = taken_apart(factory, (3,))
    assert call == Call("tests.isolation.workers:Described", (1, 2, 3), {"a": "outer", "b": "inner"})
    assert located(call.reference) is Described
    assert Described(*call.arguments, **call.keywords).made == factory(3).made


def test_a_method_of_a_class_is_found_by_its_qualified_name() -> None:
    reference = taken_apart(gr.Mailbox.__init__, ()).reference
    assert located(reference) is gr.Mailbox.__init__


def test_a_name_that_its_module_does_not_have_is_told() -> None:
    with pytest.raises(LookupError, match=r"module 'tests\.isolation\.workers' has no 'Nobody\.here'"):
        located("tests.isolation.workers:Nobody.here")
