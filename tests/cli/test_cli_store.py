"""`greenroom store` and `greenroom executions`; what each command says when its store is not as it should be."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from greenroom.persistence import EndExecution, ReadMessage
from greenroom.persistence.schema.migrations import CODE
from tests.cli.services import command, environment, finished, write_service
from tests.cli.stores import DESK, complaint, furnish, greenroom, live, objects, with_store
from tests.persistence.postgres.help import elsewhere, session
from tests.persistence.stores import done, message

if TYPE_CHECKING:
    from greenroom.persistence import Committer

EVERY = [
    ["store", "check"],
    ["store", "prune"],
    ["executions"],
    ["mailbox", "list"],
    ["mailbox", "show", DESK],
    ["mailbox", "show", DESK, "m1"],
    ["mailbox", "requeue", DESK, "m1"],
    ["mailbox", "drop", DESK, "m1"],
    ["mailbox", "unpark", DESK],
]
"""Commands that need a store to be there."""


def name_of(arguments: list[str]) -> str:
    return " ".join(arguments[:2] if arguments[0] in ("store", "mailbox") else arguments[:1])


def change(url: str, statement: str) -> None:
    """Change a database by hand."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
            connection.execute(statement)
        return

    async def main() -> None:
        async with session(url) as connection:
            await connection.execute(statement)

    elsewhere(main())


# ------------------------------------------------------------------------------------------------- wrong stores


@pytest.mark.parametrize("arguments", [*EVERY, ["store", "migrate"], ["store", "path"]], ids=" ".join)
def test_without_a_store_every_command_says_how_to_name_one(arguments: list[str]) -> None:
    result = greenroom(*arguments, env={"GREENROOM_STORE": None})
    assert result.exit_code == 2
    assert complaint(result) == (
        f"greenroom {name_of(arguments)}: no store is named: give --store URL, or set GREENROOM_STORE"
    )


@pytest.mark.parametrize("arguments", EVERY, ids=" ".join)
def test_a_store_that_is_not_there_is_not_made(url: str, arguments: list[str], tmp_path: Path) -> None:
    for _ in range(2):
        result = greenroom(*arguments, "--store", url)
        assert result.exit_code == 2
        assert complaint(result).startswith(f"greenroom {name_of(arguments)}: there is no store at {url}: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [*EVERY, ["store", "migrate"]], ids=" ".join)
@pytest.mark.parametrize(
    "wrong",
    [
        "service.db",
        "mysql://localhost/service",
        "sqlite://service.db",
        "sqlite://:memory:",
        "sqlite:///a.db?durability=some",
        "postgresql://localhost/db?durability=some",
        "postgresql://[localhost/db",
        "postgresql://localhost:port/db",
    ],
)
def test_a_url_that_will_not_do_is_one_line_and_two(arguments: list[str], wrong: str, tmp_path: Path) -> None:
    result = greenroom(*arguments, "--store", wrong)
    assert result.exit_code == 2
    assert f"the store's URL {wrong!r} will not do" in complaint(result)


@pytest.mark.parametrize("arguments", [*EVERY, ["store", "migrate"]], ids=" ".join)
def test_a_server_that_is_down_is_one_line_and_one(arguments: list[str]) -> None:
    result = greenroom(*arguments, "--store", "postgresql://me:a-password@127.0.0.1:1/db")
    assert result.exit_code == 1
    line = complaint(result)
    assert line.startswith(
        f"greenroom {name_of(arguments)}: the store postgresql://me:***@127.0.0.1:1/db did not answer"
    )


@pytest.mark.parametrize("arguments", EVERY, ids=" ".join)
def test_a_store_of_newer_code_is_left_alone(url: str, arguments: list[str]) -> None:
    greenroom("store", "migrate", "--store", url)
    change(url, "UPDATE meta SET version = 99, oldest_code = 98")
    result = greenroom(*arguments, "--store", url)
    assert result.exit_code == 1
    assert "install a newer greenroom" in result.output
    if arguments != ["store", "check"]:
        assert "needs code 98 or later" in complaint(result)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    result = greenroom("mailbox", "list", "--store", f"sqlite:///{path}")
    assert result.exit_code == 1
    assert "a database of something else" in complaint(result)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello " * 1000)
    result = greenroom("mailbox", "list", "--store", f"sqlite:///{tmp_path}/notes.txt")
    assert result.exit_code == 1
    assert "not a database" in complaint(result)


def test_the_store_may_be_named_by_the_environment(url: str) -> None:
    greenroom("store", "migrate", "--store", url)
    result = greenroom("executions", env={"GREENROOM_STORE": url})
    assert result.exit_code == 0
    assert "no execution is in work" in result.stdout


# ------------------------------------------------------------------------------------------------------- migrate


def test_a_store_is_made_and_then_left_as_it_is(url: str) -> None:
    assert objects(greenroom("store", "migrate", "--store", url, "--json"))[0]["version"] == CODE
    with_store(url, furnish)
    result = greenroom("store", "migrate", "--store", url)
    assert result.exit_code == 0
    assert f"is up to date: version {CODE}" in result.stdout
    assert objects(greenroom("mailbox", "list", "--store", url, "--json"))


def test_no_folder_is_made_for_a_store(tmp_path: Path) -> None:
    result = greenroom("store", "migrate", "--store", f"sqlite:///{tmp_path}/no/store.db")
    assert result.exit_code == 1
    assert "cannot be opened" in complaint(result)
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------------- check


def test_a_good_store_is_said_to_be_and_what_it_promises(url: str) -> None:
    greenroom("store", "migrate", "--store", url)
    result = greenroom("store", "check", "--store", url)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "durability full"
    reduced = url + ("&" if "?" in url else "?") + "durability=reduced"
    assert objects(greenroom("store", "check", "--store", reduced, "--json"))[0]["durability"] == "reduced"


def test_what_is_not_as_it_should_be_is_named_line_by_line(url: str) -> None:
    greenroom("store", "migrate", "--store", url)
    change(url, "DROP INDEX addresses_parked")
    result = greenroom("store", "check", "--store", url)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == ["the index addresses_parked is missing"]
    told = greenroom("store", "check", "--store", url, "--json")
    assert told.exit_code == 1
    assert '"problems":["the index addresses_parked is missing"]' in told.stdout


# --------------------------------------------------------------------------------------------------------- prune


async def _look(store: Committer) -> None:
    assert await store.read(ReadMessage(address=DESK, message_id="m1")) is None
    for message_id in ("m2", "m3"):
        assert await store.read(ReadMessage(address=DESK, message_id=message_id)) is not None


def test_what_was_settled_long_ago_is_forgotten_and_nothing_else(url: str) -> None:
    with_store(url, furnish, days_ago=30)
    for option, word in ((["--dry-run"], "would be forgotten"), ([], "forgotten")):
        result = greenroom("store", "prune", "--store", url, *option)
        assert result.exit_code == 0
        rows = dict(line.split() for line in result.stdout.splitlines()[1:])
        assert word in result.stdout.splitlines()[0]
        assert rows["messages"] == "1"
    assert {row["kind"]: row["count"] for row in objects(greenroom("store", "prune", "--store", url, "--json"))} == (
        dict.fromkeys(rows, 0)
    )
    with_store(url, _look)


# ---------------------------------------------------------------------------------------------------------- path


def test_the_path_of_a_file_is_said_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = greenroom("store", "path", "--store", "sqlite:///a%20store.db?durability=reduced")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path}/a store.db\n")


def test_the_path_of_a_server_has_no_password() -> None:
    url = "postgresql://me:a-password@db.example/service?schema=shop"
    assert objects(greenroom("store", "path", "--store", url, "--json")) == [
        {"place": "postgresql://me:***@db.example/service?schema=shop"}
    ]


# ----------------------------------------------------------------------------------------------------- executions


def test_executions_are_listed_with_what_the_store_promises(url: str) -> None:
    async def fill(store: Committer) -> None:
        await live(store, "alive")
        await live(store, "ended")
        await done(store, EndExecution(execution_id="ended"))

    with_store(url, fill)
    result = greenroom("executions", "--store", url)
    assert result.exit_code == 0
    first, titles, row = result.stdout.splitlines()
    assert first.endswith("durability full")
    assert titles.split()[:5] == ["execution", "host", "pid", "state", "alive"]
    assert row.split()[:4] == ["alive", "here", "1", "active"]
    everything = objects(greenroom("executions", "--store", url, "--ended", "--json"))
    assert [(each["execution_id"], each["state"], each["durability"]) for each in everything] == [
        ("alive", "active", "full"), ("ended", "ended", "full"),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------ services

SERVICE = """
import attrs
import greenroom as gr

@attrs.frozen
class Order(gr.Message[None]):
    card: str

class Desk(gr.Actor):
    @gr.handles
    async def order(self, message: Order) -> None:
        raise ValueError("no stock")

tree = gr.Supervisor(
    "service", gr.Child("desk", Desk, mailbox=gr.PersistentMailbox(max_deliveries=2)), intensity=5
)
"""


def test_a_service_is_given_its_store_and_is_seen_from_outside(url: str, tmp_path: Path) -> None:
    write_service(tmp_path, text=SERVICE)
    with subprocess.Popen(
        command("run", "service:tree", "--store", url),
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            watch_from_outside(url, process.pid, process.stderr)
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=50)[0] is None
            assert process.returncode == 0
        finally:
            process.kill()
    assert objects(greenroom("executions", "--json", "--store", url)) == []


def watch_from_outside(url: str, pid: int, lines: IO[str]) -> None:
    until("child=service/desk", lines)
    (execution,) = objects(greenroom("executions", "--json", "--store", url))
    assert (execution["pid"], execution["state"], execution["alive"]) == (pid, "active", True)
    with_store(url, send_an_order)
    until("dead letter in the store", lines)
    (dead,) = objects(greenroom("mailbox", "show", DESK, "--json", "--store", url))
    assert (dead["message_id"], dead["status"], dead["deliveries"]) == ("m1", "dead", 2)
    assert greenroom("mailbox", "requeue", DESK, "m1", "--store", url).exit_code == 0
    until("dead letter in the store", lines)
    assert greenroom("mailbox", "drop", DESK, "m1", "--store", url).exit_code == 0


def until(needle: str, lines: IO[str]) -> None:
    """Read on up to the line that holds a text."""
    seen = []
    for line in lines:
        seen.append(line)
        if needle in line:
            return
    pytest.fail(f"the service has ended without {needle!r}:\n{''.join(seen)}")


async def send_an_order(store: Committer) -> None:
    await done(store, message(DESK, "m1", b'{"$":"service:Order","card":"a secret"}', type="service:Order"))


@pytest.mark.parametrize(
    ("store", "status", "said"),
    [
        (None, 2, "'service/desk' keeps its messages in a store"),
        ("service.db", 2, "the store's URL 'service.db' will not do"),
        ("sqlite://:memory:", 2, "'service/desk' is meant to outlive the process"),
        ("sqlite:///no/such/folder/service.db", 1, "cannot be opened"),
        ("sqlite:///notes.txt", 1, "not a database"),
    ],
)
def test_a_service_whose_store_will_not_do_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str | None, status: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    write_service(tmp_path, text=SERVICE)
    (tmp_path / "notes.txt").write_text("hello " * 1000)
    result = greenroom("run", "service:tree", *(["--store", store] if store else []), env={"GREENROOM_STORE": None})
    assert result.exit_code == status
    assert said in complaint(result)


# -------------------------------------------------------------------------------------------------- as a process


def test_the_command_line_works_as_a_process_too(url: str, tmp_path: Path) -> None:
    assert finished("store", "migrate", "--store", url, cwd=tmp_path).returncode == 0
    done_ = finished("mailbox", "list", "--store", url, cwd=tmp_path)
    assert (done_.returncode, done_.stderr) == (0, "")
    assert "nothing waits" in done_.stdout
    wrong = finished("mailbox", "show", "service/nobody", "--store", url, cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert len(wrong.stderr.splitlines()) == 1


@pytest.mark.parametrize("arguments", [[], ["migrate"], ["check"], ["prune"], ["path"]], ids=" ".join)
def test_help_is_given_with_the_exit_statuses(arguments: list[str]) -> None:
    result = greenroom("store", *arguments, "--help")
    assert result.exit_code == 0
    assert not arguments or "Exit status: 0 when it was done" in result.stdout
