"""Log lines: one for each record, in pairs that can be read back."""

from __future__ import annotations

import json
import logging
import re

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

import greenroom as gr
from greenroom.cli.logs import LEVELS, Formatter, error_fields, event_fields, log_event, logfmt, place

keys = st.from_regex(r"[a-z_]{1,10}", fullmatch=True)
PAIR = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)(?: |$)')


def read_back(line: str) -> dict[str, str]:
    """Read a line of pairs, by the rules that logfmt's readers follow."""
    return {key: json.loads(value) if value.startswith('"') else value for key, value in PAIR.findall(line)}


@given(st.dictionaries(keys, st.text(min_size=1), max_size=6))
def test_any_text_is_read_back_as_it_was(fields: dict[str, str]) -> None:
    assert read_back(logfmt(fields)) == fields


@given(st.dictionaries(keys, st.text(), max_size=6))
def test_whatever_is_written_stays_on_one_line_and_controls_no_terminal(fields: dict[str, str]) -> None:
    assert logfmt(fields).isprintable()


def test_what_is_none_or_empty_is_left_out() -> None:
    assert logfmt({"a": None, "b": "", "c": 0, "d": ()}) == "c=0"


def test_numbers_and_truths_are_plain() -> None:
    assert logfmt({"a": 1, "b": 0.25, "c": True, "d": ("x", "y")}) == "a=1 b=0.250 c=true d=x,y"


def test_an_event_is_told_by_its_name_its_path_and_its_fields() -> None:
    event = gr.RestartDelayed(at=1.0, path="s/a", delay=0.5, failures=2)
    assert event_fields(event) == {"event": "restart_delayed", "path": "s/a", "delay": 0.5, "failures": 2}


def test_an_end_is_told_with_its_error_and_what_that_came_from() -> None:
    error = ValueError("no")
    error.__cause__ = KeyError("k")
    told = event_fields(gr.ActorEnded(at=0.0, path="s/a", incarnation=3, exit=gr.Exit("error", error)))
    assert told == {
        "event": "actor_ended",
        "path": "s/a",
        "incarnation": 3,
        "exit": "error",
        "error": "ValueError: no",
        "where": None,
        "cause": "KeyError: 'k'",
    }


def test_a_stack_is_told_by_its_innermost_place() -> None:
    event = gr.LoopBlocked(
        at=0.0,
        path="s/a",
        seconds=1.5,
        message_type="Tick",
        stack='  File "a.py", line 3, in f\n  File "b.py", line 9, in g\n',
    )
    assert event_fields(event)["where"] == "b.py:9 in g"


def test_the_place_of_a_stack_that_ends_in_a_wait_is_where_the_wait_was_called() -> None:
    stack = f'  File "a.py", line 3, in handler\n  File "{anyio.__file__}", line 9, in sleep\n'
    assert place(stack) == "a.py:3 in handler"


def test_an_empty_stack_has_no_place() -> None:
    assert place("") == ""


def test_a_stage_is_told_by_its_name() -> None:
    told = event_fields(gr.StopRequested(at=0.0, path="s", stage=gr.Stage.CANCELLED, why="SIGINT arrived"))
    assert told["stage"] == "CANCELLED"


def test_an_error_is_told_with_the_line_that_raised_it() -> None:
    try:
        raise OSError("gone")
    except OSError as error:
        where = str(error_fields(error)["where"])
    assert re.fullmatch(r".*test_cli_logs\.py:\d+ in test_an_error_is_told_with_the_line_that_raised_it", where)


async def test_an_error_that_came_out_of_a_call_of_ours_is_told_with_the_line_that_made_the_call() -> None:
    class Deaf(gr.Actor):
        pass

    @attrs.frozen
    class Hello(gr.Message[None]):
        pass

    async with gr.Runtime(gr.Supervisor("s", gr.Child("a", Deaf))) as runtime:
        with pytest.raises(gr.UnhandledMessage) as caught:
            await runtime.ref("s/a").ask(Hello())
    where = str(error_fields(caught.value)["where"])
    assert re.fullmatch(r".*test_cli_logs\.py:\d+ in test_an_error_that_came_out_of_a_call_of_ours.*", where)


def test_an_error_of_our_own_alone_has_no_place() -> None:
    with pytest.raises(gr.BadSpec) as caught:
        gr.Supervisor("")
    caught.value.__traceback__ = caught.tb.tb_next
    assert error_fields(caught.value)["where"] is None


def test_what_the_error_says_is_said_once() -> None:
    error = gr.TreeFailed("s")
    line = Formatter().format(record(str(error), exc_info=(type(error), error, None)))
    assert line.partition("logger=some.logger ")[2] == """error="TreeFailed: the tree 's' has ended by failure\""""


def record(message: str = "hello", level: int = logging.INFO, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("some.logger", level, "a.py", 1, message, (), None)
    made.created = 0.25
    made.__dict__.update(extra)
    return made


def test_a_plain_record_is_one_line_with_time_level_and_logger() -> None:
    assert Formatter().format(record()) == ("time=1970-01-01T00:00:00.250Z level=info logger=some.logger message=hello")


def test_of_a_message_of_many_lines_the_first_is_kept() -> None:
    assert Formatter().format(record("one\ntwo")).endswith("message=one")


def report(context: str, exit: gr.Exit | None, reason: str) -> gr.SupervisorReport:
    child = gr.ChildRecord(
        name="a",
        path="s/a",
        incarnation=2,
        factory="m:A",
        restart="permanent",
        significant=False,
        shutdown=5.0,
        kind="worker",
    )
    return gr.SupervisorReport(at=0.0, path="s", context=context, reason=reason, offender=child, exit=exit)  # type: ignore[arg-type]


def test_a_supervisors_report_is_told_in_fields_and_its_reason_once() -> None:
    exit = gr.Exit("error", ValueError("no"))
    line = Formatter().format(record(report=report("child_terminated", exit, str(exit))))
    assert line.partition("logger=some.logger ")[2] == (
        'event=child_terminated supervisor=s child=s/a incarnation=2 restart=permanent exit=error error="ValueError: no"'
    )


def test_a_failed_start_tells_its_error_once() -> None:
    told = event_fields(report("start_error", gr.Exit("error", OSError("no disk")), "no disk"))
    assert (told["reason"], told["error"]) == (None, "OSError: no disk")


def test_a_good_start_has_no_exit() -> None:
    assert "exit" not in event_fields(report("progress", gr.Exit("normal"), "started"))


def test_a_reason_of_its_own_is_told() -> None:
    told = event_fields(report("shutdown", gr.Exit("shutdown"), "reached_max_restart_intensity"))
    assert told["reason"] == "reached_max_restart_intensity"


def test_a_traceback_comes_only_when_it_is_asked_for() -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        failed = record(exc_info=(type(error), error, error.__traceback__))
    short = Formatter().format(failed)
    long = Formatter(traces=True).format(failed)
    assert "Traceback" not in short
    assert long.startswith(short + "\n    Traceback (most recent call last):\n")


@pytest.mark.parametrize(
    "kind", [kind for kind in vars(gr).values() if isinstance(kind, type) and issubclass(kind, gr.Event)]
)
def test_every_kind_of_event_has_a_level_or_is_logged_by_its_supervisor(kind: type[gr.Event]) -> None:
    assert kind in LEVELS or kind in (gr.Event, gr.SupervisorReport)


def test_an_event_is_logged_at_the_level_of_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "greenroom.events")
    log_event(gr.ActorStarted(at=0.0, path="s/a", incarnation=1))
    log_event(gr.LoopBlocked(at=0.0, path="s/a", seconds=1.0, message_type=None, stack=""))
    assert [r.levelno for r in caplog.records] == [logging.DEBUG, logging.WARNING]


def test_what_the_supervisor_has_logged_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "greenroom.events")
    log_event(report("progress", None, "started"))
    assert caplog.records == []


async def test_a_delayed_restart_is_one_line_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(gr.Actor):
        async def on_start(self) -> None:
            self.context.nursery.start_soon(self.fail)

        async def fail(self) -> None:
            raise ValueError("on purpose")

    backoff = gr.Backoff(1.0, jitter=0.0)
    tree = gr.Supervisor("s", gr.Child("a", Failing), backoff=backoff)
    async with gr.Runtime(tree) as runtime:
        with runtime.events() as events, caplog.at_level(logging.INFO):
            await anyio.sleep(0.5)
            for event in events.pending():
                log_event(event)
    lines = [line for line in map(Formatter().format, caplog.records) if "restart_delayed" in line or "after 0" in line]
    (line,) = lines
    assert line.endswith("logger=greenroom.supervisor event=restart_delayed path=s/a delay=1.000 failures=0")


def test_an_event_of_a_new_kind_is_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    @attrs.frozen(kw_only=True)
    class Sneezed(gr.Event):
        loudness: int

    caplog.set_level(logging.INFO, "greenroom.events")
    log_event(Sneezed(at=0.0, path="s/a", loudness=3))
    (logged,) = caplog.records
    assert Formatter().format(logged).endswith("event=sneezed path=s/a loudness=3")
