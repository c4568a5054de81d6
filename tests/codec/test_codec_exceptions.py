"""Exceptions travel as text and come back as RemoteError, the cause chain with them."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

import pytest
from attrs import frozen

from greenroom.codec import Codec
from greenroom.errors import NotEncodable, RemoteError, Undecodable
from tests.codec.values import Pair, new_codec

CODEC = new_codec()


class Custom(Exception):
    def __init__(self, code: int, *, hint: str) -> None:
        super().__init__(f"code {code}")
        self.code, self.hint = code, hint


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - that it has a traceback now is the purpose
        return caught


def back(error: BaseException) -> RemoteError:
    remote = CODEC.decode(CODEC.encode(error))
    assert type(remote) is RemoteError
    return remote


def fields(error: RemoteError | None) -> Any:
    if error is None:
        return None
    rest = (
        error.arguments,
        error.trace,
        fields(error.cause),
        error.notes,
        [fields(member) for member in error.members],
    )
    return (error.type_name, error.text, *rest)


def chain() -> BaseException:
    try:
        try:
            raise KeyError("k")
        except KeyError as error:
            raise Custom(7, hint="h") from error
    except Custom as error:
        error.add_note("a note")
        return error


def test_type_text_arguments_and_notes_are_kept() -> None:
    remote = back(chain())
    assert remote.type_name == f"{__name__}.Custom"
    assert remote.text == "code 7"
    assert remote.arguments == ("'code 7'",)
    assert remote.notes == ("a note",)
    assert str(remote) == f"{__name__}.Custom: code 7"


def test_the_traceback_is_kept_as_text() -> None:
    trace = back(raised(ValueError("bad"))).trace
    assert trace.startswith("Traceback (most recent call last):")
    assert trace.endswith("ValueError: bad\n")
    assert "in raised" in trace


def test_the_cause_is_kept_and_chained() -> None:
    remote = back(chain())
    assert remote.cause is not None
    assert remote.cause.type_name == "KeyError"
    assert remote.__cause__ is remote.cause


def test_a_context_counts_as_cause_unless_it_was_suppressed() -> None:
    def failing(*, suppressed: bool) -> BaseException:
        try:
            try:
                raise KeyError("k")
            except KeyError:
                if suppressed:
                    raise ValueError("v") from None
                raise ValueError("v")  # noqa: B904 - the implicit context is the subject
        except ValueError as error:
            return error

    shown, hidden = back(failing(suppressed=False)), back(failing(suppressed=True))
    assert shown.cause is not None
    assert hidden.cause is None


def test_who_prints_its_traceback_sees_the_remote_one() -> None:
    shown = "".join(traceback.format_exception(back(raised(ValueError("bad")))))
    assert "raised elsewhere:" in shown
    assert "in raised" in shown


def test_the_members_of_a_group_are_kept() -> None:
    remote = back(ExceptionGroup("two", [ValueError("a"), ExceptionGroup("one", [KeyError("b")])]))
    assert [member.type_name for member in remote.members] == ["ValueError", "ExceptionGroup"]
    assert remote.members[1].members[0].text == "'b'"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_exceptions_that_are_no_errors_come_back_as_an_error(error: BaseException) -> None:
    assert back(error).type_name == type(error).__name__


def test_an_exception_that_cannot_tell_itself_is_told_nevertheless() -> None:
    remote = back(Unspeakable(Unspeakable()))
    assert remote.text == "<str() raised RuntimeError>"
    assert remote.arguments == ("<repr() raised RuntimeError>",)


def test_text_that_utf8_cannot_carry_is_escaped_not_refused() -> None:
    assert back(ValueError("a\ud800b")).text == "a\\ud800b"


def test_a_cause_chain_that_bites_its_tail_ends() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    depth, remote = 0, back(one)
    while remote.cause is not None:
        depth, remote = depth + 1, remote.cause
    assert depth == 32
    assert remote.notes == ("1 exception(s) that it came from or holds are left out",)


def test_groups_that_hold_themselves_in_several_ways_are_told_up_to_a_limit() -> None:
    members = [ValueError(str(number)) for number in range(3)]
    group = ExceptionGroup("g", members)
    for member in members:
        member.__cause__ = group

    def count(remote: RemoteError) -> int:
        return 1 + sum(map(count, remote.members)) + (count(remote.cause) if remote.cause else 0)

    assert count(back(group)) == 256


def test_a_group_of_very_many_says_how_many_it_leaves_out() -> None:
    remote = back(ExceptionGroup("g", [ValueError("v")] * 300))
    assert len(remote.members) == 255
    assert remote.notes == ("45 exception(s) that it came from or holds are left out",)


def test_a_remote_error_is_passed_on_as_it_was() -> None:
    remote = back(chain())
    assert fields(back(remote)) == fields(remote)


def test_a_note_added_on_the_way_is_passed_on() -> None:
    remote = back(raised(ValueError("v")))
    remote.add_note("seen by the supervisor")
    assert back(remote).notes == ("seen by the supervisor",)


def test_an_exception_may_stand_in_a_field() -> None:
    @frozen
    class Ended:
        cause: BaseException | None
        other: Exception

    codec = Codec()
    codec.register(Ended)
    ended = codec.decode(codec.encode(Ended(SystemExit(1), ValueError("v"))))
    assert (ended.cause.type_name, ended.other.type_name) == ("SystemExit", "ValueError")
    with pytest.raises(NotEncodable, match=r"Ended.other: expected Exception, found str"):
        codec.encode(Ended(None, "text"))  # type: ignore[arg-type]


def test_a_remote_error_survives_pickling_with_all_it_holds() -> None:
    remote = back(BaseExceptionGroup("g", [chain()]))
    remote.add_note("added")
    again = pickle.loads(pickle.dumps(remote))
    assert fields(again) == fields(remote)
    assert again.__notes__ == remote.__notes__
    assert str(again) == str(remote)
    assert again.members[0].__cause__ is again.members[0].cause


@pytest.mark.parametrize(
    "body",
    [
        b"1",
        b"{}",
        b'{"arguments":[],"cause":null,"members":[],"notes":[],"text":"t","trace":"","type":1}',
        b'{"arguments":[1],"cause":null,"members":[],"notes":[],"text":"t","trace":"","type":"E"}',
        b'{"arguments":[],"cause":1,"members":[],"notes":[],"text":"t","trace":"","type":"E"}',
        b'{"arguments":[],"cause":null,"members":{},"notes":[],"text":"t","trace":"","type":"E"}',
        b'{"arguments":[],"cause":null,"members":[],"notes":[],"text":"t","trace":"","type":"E","more":1}',
    ],
)
def test_data_that_tells_no_exception_is_refused(body: bytes) -> None:
    with pytest.raises(
        Undecodable, match=r"Pair.left: (an exception has exactly|the (parts|arguments and notes) of an)"
    ):
        CODEC.decode(b'{"$":"tests.codec.values:Pair","left":{"$":"!error","=":' + body + b"}}")


def test_decoding_never_makes_the_original_class() -> None:
    assert type(CODEC.decode(CODEC.encode(Pair(Custom(1, hint="h")))).left) is RemoteError
