"""Finding classes by their names, as process workers do, and refusing those that could not be found again (P27)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import types
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import frozen

import greenroom
from greenroom.codec import Codec, default_tag, import_class, wire
from greenroom.errors import NotEncodable, Undecodable
from tests.codec import values
from tests.codec.values import Circle, Colour, GiftLine, Line, Page, Pair, Shape, Square, an_order, same


@frozen
class Shown:
    shape: Shape
    n: int = 0


@wire("a tag of its own")
@frozen
class Tagged:
    n: int


def by_name() -> Codec:
    return Codec(resolve=import_class)


@pytest.mark.parametrize(
    "value", [an_order(), Pair(Colour.RED, GiftLine("a")), Page([Circle(1.0)]), Shown(Square(1.0))]
)
def test_two_codecs_that_resolve_need_no_registration(value: Any) -> None:
    assert same(by_name().decode(by_name().encode(value)), value)


def test_a_codec_that_resolves_nothing_names_the_unknown_tag_and_the_way_out() -> None:
    with pytest.raises(
        Undecodable, match=r"the type tag 'tests.codec.values:Line' is unknown: register its class, or put"
    ):
        Codec().decode(by_name().encode(Line("a")))


def test_a_name_that_is_gone_is_refused_with_the_way_out() -> None:
    with pytest.raises(Undecodable) as caught:
        by_name().decode(b'{"$":"tests.codec.values:Gone","n":1}')
    assert "module 'tests.codec.values' has no 'Gone': if the class was renamed" in str(caught.value)
    assert isinstance(caught.value.__cause__, LookupError)


def test_a_class_of_another_program_s_main_file_is_told_to_move_to_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    program = types.ModuleType("__main__")
    program.__file__ = __file__
    monkeypatch.setitem(sys.modules, "__main__", program)
    with pytest.raises(LookupError, match="it was the main file of another program: move the class to a module"):
        import_class("__main__:NobodyIsCalledThis")


def test_a_module_that_is_gone_is_named() -> None:
    with pytest.raises(Undecodable, match=r"there is no module 'no_such_module'"):
        by_name().decode(b'{"$":"no_such_module.x:Gone"}')


@pytest.mark.parametrize(
    "tag", ["os:system", "builtins:int", "os:PathLike", "threading:Thread", "tests.codec.values:Shape"]
)
def test_what_is_found_by_name_but_is_no_value_class_is_not_made(tag: str) -> None:
    with pytest.raises(Undecodable, match=r"was not found"):
        by_name().decode(b'{"$":"%s"}' % tag.encode())


@pytest.mark.parametrize("tag", ["", "x", ":", "a:", "a b:C", "os:..", "../x:y", "os:path;x"])
def test_a_tag_that_is_no_name_is_never_imported(tag: str) -> None:
    with pytest.raises(LookupError, match=r"not of the form"):
        import_class(tag)


def test_a_class_inside_a_function_is_refused_with_the_way_out() -> None:
    @frozen
    class Inner:
        n: int

    with pytest.raises(NotEncodable, match=r"<locals>.Inner is defined inside a function.* move it to module level"):
        by_name().register(Inner)
    with pytest.raises(NotEncodable, match=r"Pair.left: .* is defined inside a function"):
        by_name().encode(Pair(Inner(1)))


def test_a_class_inside_a_function_that_a_field_holds_is_refused_too() -> None:
    @frozen
    class Inner:
        n: int

    holder = attrs.make_class("Holder", {"it": attrs.field(type=Inner)})
    with pytest.raises(NotEncodable, match=r"Inner is defined inside a function"):
        by_name().register(holder)


def test_a_class_inside_a_function_is_good_where_nothing_must_be_found_again() -> None:
    @frozen
    class Inner:
        n: int

    codec = Codec()
    codec.register(Inner)
    assert codec.decode(codec.encode(Inner(1))) == Inner(1)


def test_a_class_whose_name_means_something_else_by_now_is_refused() -> None:
    impostor = attrs.make_class("Line", {"sku": attrs.field(type=str)})
    impostor.__module__ = values.__name__
    with pytest.raises(NotEncodable, match=r"tests.codec.values:Line names another object by now"):
        by_name().register(impostor)


def test_a_class_with_a_tag_of_its_own_must_be_registered_where_classes_are_found_by_name() -> None:
    with pytest.raises(NotEncodable, match=r"has a tag of its own, by which nobody could import it"):
        by_name().encode(Tagged(1))
    one, other = by_name(), by_name()
    one.register(Tagged)
    other.register(Tagged)
    assert other.decode(one.encode(Tagged(1))) == Tagged(1)


def test_a_class_reached_through_another_module_is_found_by_that_name_again() -> None:
    data = b'{"$":"tests.codec.test_codec_resolving:Circle","radius":1.0}'
    codec = by_name()
    assert codec.decode(data) == codec.decode(data) == Circle(1.0)


def test_a_resolver_of_the_users_own_is_asked_once() -> None:
    asked: list[str] = []

    def resolve(tag: str) -> type[Any]:
        asked.append(tag)
        return Circle

    codec = Codec(resolve=resolve)
    data = b'{"$":"round","radius":1.0}'
    assert codec.decode(data) == codec.decode(data) == Circle(1.0)
    assert asked.count("round") == 1


def test_whatever_a_resolver_raises_makes_the_data_undecodable() -> None:
    def resolve(tag: str) -> type[Any]:
        raise RuntimeError("the import failed")

    with pytest.raises(Undecodable, match=r"the class of the type tag 'x:Y' was not found: the import failed"):
        Codec(resolve=resolve).decode(b'{"$":"x:Y"}')


def test_a_class_of_a_session_without_a_file_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    session = types.ModuleType("__main__")
    cls = attrs.make_class("Typed", {"n": attrs.field(type=int)})
    cls.__module__ = "__main__"
    session.Typed = cls  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", session)
    with pytest.raises(NotEncodable, match=r"session that has no file .*put the class into a module"):
        by_name().register(cls)


def test_the_main_module_has_one_name_in_parent_and_worker() -> None:
    cls = attrs.make_class("Typed", {"n": attrs.field(type=int)})
    cls.__module__ = "__mp_main__"
    assert default_tag(cls) == "__main__:Typed"


def test_p27_a_class_of_a_script_comes_back_from_a_worker_that_multiprocessing_spawned(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import multiprocessing
            from attrs import frozen
            from greenroom.codec import Codec, import_class

            @frozen
            class Question:
                n: int

            @frozen
            class Answer:
                question: Question

            def work(pipe):
                codec = Codec(resolve=import_class)
                pipe.send_bytes(codec.encode(Answer(codec.decode(pipe.recv_bytes()))))

            if __name__ == "__main__":
                ours, theirs = multiprocessing.get_context("spawn").Pipe()
                worker = multiprocessing.get_context("spawn").Process(target=work, args=(theirs,))
                worker.start()
                codec = Codec(resolve=import_class)
                ours.send_bytes(codec.encode(Question(7)))
                print(codec.decode(ours.recv_bytes()) == Answer(Question(7)))
                worker.join()
            """
        )
    )
    source = str(Path(greenroom.__path__[0]).parent)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "True", done.stderr
