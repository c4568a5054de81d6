"""`greenroom submit`, `tasks`, `show` and their like: tasks seen and steered by hand, whether workers run or not."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest

import greenroom as gr
from greenroom.persistence import RegisterSchedule, SchedulePlan
from greenroom.testing import replay
from tests.cli.reviews import POOL, Review, Reviewer, serve
from tests.cli.stores import complaint, greenroom, objects, with_store
from tests.persistence.stores import done

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.persistence import Committer

REVIEW = "tests.cli.reviews:Review"
STEER = "tests.cli.reviews:Steer"


@pytest.fixture
def served(url: str) -> str:
    """A store on which the service has run once."""
    serve(url)
    return url


def command(*arguments: str, store: str) -> list[str]:
    """What a command tells people."""
    result = greenroom(*arguments, "--store", store)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


def told(*arguments: str, store: str) -> list[Any]:
    """What it tells programs."""
    return objects(greenroom(*arguments, "--json", "--store", store))


def refused(*arguments: str, store: str) -> tuple[int, str]:
    """The exit status of a command, and the one line it says."""
    result = greenroom(*arguments, "--store", store)
    return result.exit_code, complaint(result)


def submitted(store: str, topic: str, task_id: str = "T1") -> None:
    command("submit", POOL, json.dumps({"topic": topic}), "--type", REVIEW, "--id", task_id, store=store)


async def until(handle: gr.TaskHandle[Any], reached: Callable[[gr.TaskStatus], bool]) -> gr.TaskStatus:
    """Wait, in real time, for what a task comes to."""
    while not reached(status := await handle.status()):  # noqa: ASYNC110 - what is waited for is in the store
        await anyio.sleep(0.01)
    return status


async def ended(runtime: gr.Runtime, task_id: str = "T1") -> None:
    await runtime.task(task_id).wait()


async def parked(runtime: gr.Runtime, task_id: str = "T1") -> None:
    await until(runtime.task(task_id), lambda status: status.parked is not None)


async def waiting(runtime: gr.Runtime, task_id: str = "T1") -> None:
    """It waits for a signal, and has said so."""
    await until(runtime.task(task_id), lambda status: bool(status.waits))


# ------------------------------------------------------------------------------------------------------- submit


def test_a_task_is_submitted_and_steered_to_its_end_while_no_worker_runs(served: str) -> None:
    assert command("submit", POOL, '{"topic": "whales"}', "--type", REVIEW, "--id", "T1", store=served) == [
        "submitted T1"
    ]
    assert command("signal", "T1", '{"text": "shorter"}', "--type", STEER, "--id", "m1", store=served) == [
        "accepted m1"
    ]
    serve(served, ended)
    (shown,) = told("show", "T1", "--body", store=served)
    assert (shown["outcome"], shown["result"]) == ("succeeded", "WHALES, shorter")
    assert shown["request"]["topic"] == "whales"


def test_the_class_of_a_request_may_be_named_in_its_json(served: str) -> None:
    command("submit", POOL, json.dumps({"$": REVIEW, "topic": "fail"}), "--id", "T1", store=served)
    serve(served, ended)
    assert told("show", "T1", store=served)[0]["outcome"] == "failed"


def test_the_same_request_is_the_same_task_also_when_a_program_has_submitted_it(served: str) -> None:
    async def submit(runtime: gr.Runtime) -> None:
        await runtime.submit(POOL, Review("whales"), task_id="T1")

    serve(served, submit)
    submitted(served, "whales")
    status, line = refused("submit", POOL, '{"topic": "sharks"}', "--type", REVIEW, "--id", "T1", store=served)
    assert status == 1
    assert "another request was submitted as task 'T1'" in line


def test_a_task_gets_an_id_when_none_is_given(served: str) -> None:
    (one,) = told("submit", POOL, '{"topic": "a"}', "--type", REVIEW, store=served)
    (other,) = told("submit", POOL, '{"topic": "a"}', "--type", REVIEW, store=served)
    assert one["task_id"] != other["task_id"]


UNFIT: Final = [
    ((POOL, "{topic", "--type", REVIEW), "the request is not JSON"),
    ((POOL, "[1]", "--type", REVIEW), "has to be a JSON object with its fields"),
    ((POOL, "{}", "--type", REVIEW), "topic"),
    ((POOL, '{"topic": 5}', "--type", REVIEW), "topic"),
    ((POOL, '{"topic": "a", "colour": "red"}', "--type", REVIEW), "colour"),
    ((POOL, "{}", "--type", "nonsense"), "not of the form 'module:qualname'"),
    ((POOL, "{}", "--type", "no_such_module:Review"), "no_such_module"),
    ((POOL, "{}", "--type", "tests.cli.reviews:Nothing"), "Nothing"),
    (("service/nobody", '{"topic": "a"}', "--type", REVIEW), "no pool of agents 'service/nobody' is known"),
    ((POOL, '{"topic": "a"}', "--type", REVIEW, "--id", " "), "cannot be a task_id"),
    ((POOL, '{"topic": "a"}', "--type", REVIEW, "--id", "x" * 201), "cannot be a task_id"),
    ((POOL, '{"topic": "a"}', "--type", REVIEW, "--id", "a\nb"), "cannot be a task_id"),
]
"""What is given to `submit`, and what it says."""


def test_what_cannot_be_submitted_is_said_in_a_line(served: str) -> None:
    for arguments, says in UNFIT:
        status, line = refused("submit", *arguments, store=served)
        assert status == 2
        assert line.startswith("greenroom submit: ")
        assert says in line
    assert told("tasks", store=served) == []


def test_a_module_that_runs_a_program_when_it_is_imported_is_named_with_the_way_out(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs_at_once.py").write_text("raise RuntimeError('it runs')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    status, line = refused("submit", POOL, "{}", "--type", "runs_at_once:Review", store=served)
    assert status == 2
    assert "importing it raised RuntimeError: it runs (" in line
    assert "if __name__ == '__main__':" in line


# -------------------------------------------------------------------------------------------------- tasks, show


def test_tasks_are_listed_in_order_and_chosen(served: str) -> None:
    for n in range(3):
        submitted(served, "whales", f"T{n}")
    serve(served, partial(waiting, task_id="T2"))
    command("terminate", "T0", "not wanted", store=served)
    _, titles, *rows = command("tasks", store=served)
    assert titles.split()[:6] == ["task", "pool", "condition", "outcome", "attempt", "age"]
    assert [row.split()[:3] for row in rows] == [
        ["T0", POOL, "terminal"],
        ["T1", POOL, "waiting"],
        ["T2", POOL, "waiting"],
    ]
    assert f"root: receive {STEER}" in rows[1]
    listed = told("tasks", "--condition", "waiting", "--after", "T1", store=served)
    assert [(task["task_id"], task["condition"], task["outcome"]) for task in listed] == [("T2", "waiting", None)]
    assert told("tasks", "--pool", "service/others", store=served) == []
    *_, more = command("tasks", "--limit", "2", store=served)
    assert more == "and more: --after T1 shows those behind"


def test_schedules_are_listed_with_their_rules_and_whether_anybody_sees_to_them(url: str) -> None:
    plans = {
        "service/hourly": SchedulePlan(pool=POOL, request_type=REVIEW, every=3600.0, catch_up=60.0),
        "service/yearly": SchedulePlan(pool=POOL, cron="0 0 1 1 *", time_zone="Asia/Tokyo", catch_up=60.0),
    }

    async def register(store: Committer) -> None:
        for path, plan in plans.items():
            await done(store, RegisterSchedule(schedule=path, plan=plan))

    with_store(url, register, days_ago=10)
    _, titles, hourly, yearly = command("schedules", store=url)
    assert titles.split() == ["schedule", "submits", "to", "when", "next", "last", "task"]
    assert hourly.split()[:5] == ["service/hourly", "Review", POOL, "every", "3600s"]
    assert "overdue for 10d" in hourly
    assert "0 0 1 1 * Asia/Tokyo" in yearly
    first, second = told("schedules", store=url)
    assert (first["path"], first["every"], first["last_task"]) == ("service/hourly", 3600.0, None)
    assert first["overdue"] > 9 * 86_400
    assert second["next_moment"].endswith("-12-31T15:00:00Z")


def test_a_store_on_which_no_schedule_was_started_says_so(served: str) -> None:
    (line,) = command("schedules", store=served)
    assert line.endswith(": no schedule was ever started on it")
    assert told("schedules", store=served) == []


def test_show_says_in_its_first_line_why_a_task_does_not_move(served: str) -> None:
    submitted(served, "whales")
    first, *_ = command("show", "T1", store=served)
    assert first == (
        f"T1: it stands in the queue of {POOL!r}, which holds 1 tasks, and nobody serves the pool {POOL!r}: run a service that has it"
    )
    serve(served, waiting)
    first, *rest = command("show", "T1", store=served)
    assert first.startswith(f"T1: it waits for root: receive {STEER}, and nobody serves the pool")
    assert "phase: reading" in rest


def test_contents_are_shown_only_if_asked_for(served: str) -> None:
    submitted(served, "a secret")
    serve(served, waiting)
    for each in (("show", "T1"), ("events", "T1"), ("tasks",)):
        for json_option in ((), ("--json",)):
            assert "secret" not in greenroom(*each, *json_option, "--store", served).stdout.lower()
    assert "a secret" in greenroom("show", "T1", "--body", "--store", served).stdout
    assert "A SECRET" in greenroom("events", "T1", "--body", "--store", served).stdout


# ------------------------------------------------------------------------------------------------------- events


def test_events_are_shown_from_a_cursor_on(served: str) -> None:
    submitted(served, "fail")
    serve(served, ended)
    begun, read, end = told("events", "T1", "--body", store=served)
    assert [event["kind"] for event in (begun, read, end)] == ["begun", "operation", "ended"]
    assert (read["name"], read["status"], read["value"]) == ("read", "succeeded", "FAIL")
    assert told("events", "T1", "--after", str(begun["cursor"]), "--body", store=served) == [read, end]
    line = command("events", "T1", store=served)[-1]
    assert line.endswith("ended  failed  Failed: nobody knows that")
    assert refused("events", "T1", "--after", str(read["cursor"] + 1), store=served)[0] == 2


def test_following_ends_with_the_task(served: str) -> None:
    submitted(served, "fail")

    async def follow(runtime: gr.Runtime) -> None:
        result = await anyio.to_thread.run_sync(greenroom, "events", "T1", "--follow", "--json", "--store", served)
        assert [json.loads(line)["kind"] for line in result.stdout.splitlines()] == ["begun", "operation", "ended"]

    serve(served, follow)


# ------------------------------------------------------------------------------------------------------- signal


def test_a_signal_tells_what_became_of_it(served: str) -> None:
    submitted(served, "whales")
    steer = ("signal", "T1", '{"text": "a"}', "--type", STEER, "--id", "m1")
    assert told(*steer, store=served)[0]["disposition"] == "accepted"
    assert told(*steer, store=served)[0]["disposition"] == "duplicate"
    other = greenroom("signal", "T1", '{"text": "b"}', "--type", STEER, "--id", "m1", "--store", served)
    assert (other.exit_code, other.stdout) == (1, "conflict m1\n")
    serve(served, ended)
    late = greenroom("signal", "T1", '{"text": "b"}', "--type", STEER, "--id", "m2", "--store", served)
    assert (late.exit_code, late.stdout) == (1, "late m2\n")
    assert greenroom("signal", "T9", '{"text": "b"}', "--type", STEER, "--store", served).exit_code == 2


def test_a_signal_needs_a_class(served: str) -> None:
    submitted(served, "whales")
    status, line = refused("signal", "T1", '{"text": "a"}', store=served)
    assert status == 2
    assert "give --type MODULE:CLASS" in line


# ------------------------------------------------------------------------------------------- release, terminate


def test_an_operation_in_doubt_is_decided_about_and_its_task_goes_on(served: str) -> None:
    submitted(served, "pay")
    serve(served, parked)
    (shown,) = told("show", "T1", store=served)
    assert shown["parked"] == "unresolved"
    (operation,) = shown["unresolved"]
    assert (operation["name"], operation["effect"]) == ("pay", "once")
    status, line = refused("release", "T1", store=served)
    assert status == 1
    assert "decide about them first: 'pay' (root#2)" in line
    decided = ("release", "T1", "--operation", "root#2", "--decision", "succeeded", "--result", '"the receipt"')
    assert command(*decided, "--by", "ann", store=served) == ["decided root#2: succeeded, released T1"]
    serve(served, ended)
    assert told("show", "T1", "--body", store=served)[0]["result"] == "the receipt"
    assert any(line.endswith("decided: succeeded by ann") for line in command("events", "T1", store=served))
    (event,) = [event for event in told("events", "T1", store=served) if event["name"] == "pay"]
    assert [(said["decision"], said["by"]) for said in event["decisions"]] == [("succeeded", "ann")]


def test_show_says_who_has_had_an_operation_repeated_that_is_in_doubt_again(served: str) -> None:
    submitted(served, "pay")
    serve(served, parked)
    command("release", "T1", "--operation", "root#2", "--decision", "repeat", "--by", "ann", store=served)
    serve(served, parked)
    (line,) = [line for line in command("show", "T1", store=served) if line.startswith("root#2")]
    assert "repeat by ann" in line


KEPT: Final = [
    (("T1",), 1, "not parked"),
    (("T9",), 2, "there is no task 'T9'"),
    (("T1", "--operation", "root#2"), 2, "give --operation CALL and --decision"),
    (("T1", "--decision", "failed"), 2, "give --operation CALL and --decision"),
    (
        ("T1", "--operation", "root#2", "--decision", "failed", "--result", "5"),
        2,
        "only an operation that succeeded",
    ),
    (("T1", "--operation", "root#2", "--decision", "failed"), 2, "no operation root#2 with an intent"),
    (("T1", "--operation", "root#2", "--decision", "succeeded", "--result", "{"), 2, "the result is not JSON"),
]
"""What is given to `release`, its exit status, and what it says."""


def test_what_cannot_be_released_is_said_in_a_line(served: str) -> None:
    submitted(served, "whales")
    for arguments, status, says in KEPT:
        code, line = refused("release", *arguments, store=served)
        assert code == status
        assert says in line


def test_r24_a_task_is_terminated_while_nobody_runs_its_pool(served: str) -> None:
    submitted(served, "whales")
    assert command("terminate", "T1", "not wanted", store=served) == ["terminated T1"]
    first, *_ = command("show", "T1", store=served)
    assert first == "T1: it has ended: cancelled: not wanted"
    assert refused("terminate", "T9", "why", store=served)[0] == 2


def test_a_task_is_told_to_stop(served: str) -> None:
    submitted(served, "whales")
    assert command("cancel", "T1", "enough", store=served) == ["told to stop T1"]
    serve(served, ended)
    assert told("show", "T1", store=served)[0]["outcome"] == "cancelled"
    assert refused("cancel", "T9", "why", store=served)[0] == 2


def test_r19_a_task_that_has_ended_is_pursued_once_more(served: str) -> None:
    submitted(served, "fail")
    assert refused("new-attempt", "T1", "too early", store=served)[0] == 1
    serve(served, ended)
    assert refused("new-attempt", "T1", "again", "--from", "root#9", store=served)[0] == 2
    assert command("new-attempt", "T1", "they know now", "--from", "read", store=served) == ["attempt 2 of T1 begins"]
    serve(served, ended)
    (shown,) = told("show", "T1", store=served)
    assert (shown["attempt"], shown["outcome"]) == (2, "succeeded")


# ------------------------------------------------------------------------------------------------------- export


def test_an_exported_journal_is_replayed(served: str, tmp_path: Path) -> None:
    submitted(served, "whales")
    serve(served, waiting)
    file = tmp_path / "t1.json"
    assert command("export", "T1", str(file), store=served) == []
    replayed = anyio.run(replay, Reviewer, file)
    assert (replayed.rows, replayed.ended, replayed.waits) == (1, False, (f"root: receive {STEER}",))
    assert greenroom("export", "T1", "--store", served).stdout.startswith("{")
    assert refused("export", "T1", str(tmp_path / "none" / "t1.json"), store=served)[0] == 2
    assert refused("export", "T9", store=served)[0] == 2


# ------------------------------------------------------------------------------------------------- all of them


@pytest.mark.parametrize(
    "arguments",
    [
        ("submit", POOL, "{}"),
        ("tasks",),
        ("show", "T1"),
        ("events", "T1"),
        ("signal", "T1", "{}"),
        ("release", "T1"),
        ("cancel", "T1", "why"),
        ("terminate", "T1", "why"),
        ("new-attempt", "T1", "why"),
        ("export", "T1"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_each_command_says_when_its_store_is_not_there(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    status, line = refused(*arguments, store=f"sqlite:///{tmp_path}/nowhere.db")
    assert status == 2
    assert line.startswith(f"greenroom {arguments[0]}: there is no store at ")
    assert not (tmp_path / "nowhere.db").exists()


def test_an_impossible_id_is_refused_by_each_command(served: str) -> None:
    for name in ("show", "events", "export"):
        for task_id in ("", "  ", "a\x00b", "x" * 201):
            status, line = refused(name, task_id, store=served)
            assert status == 2
            assert "cannot be a task_id" in line
