"""`greenroom mailbox`: what waits, what is dead, what is parked; and what an operator does about it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import pytest

from greenroom.cli.output import seconds_between
from greenroom.codec import Codec
from greenroom.persistence import Committer, ReadAddress, open_store
from tests.cli.services import finished, in_terminal
from tests.cli.stores import DESK, complaint, furnish, greenroom, live, objects, with_store
from tests.persistence.stores import done, message, owner

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def furnished(url: str) -> str:
    """A store with something in it."""
    with_store(url, furnish)
    return url


def mailbox(*arguments: str, store: str) -> list[str]:
    """What a command tells people."""
    result = greenroom("mailbox", *arguments, "--store", store)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout.splitlines()


# --------------------------------------------------------------------------------------------------------- list


def test_addresses_where_there_is_something_to_see_are_listed_with_what_the_store_promises(furnished: str) -> None:
    first, titles, *rows = mailbox("list", store=furnished)
    assert first.endswith("durability full")
    assert titles.split() == ["address", "kind", "queued", "ready", "delayed", "dead", "parked", "owner"]
    assert [row.split() for row in rows] == [
        ["service/attic", "actor", "0", "0", "0", "0", "undecodable"],
        ["service/desk", "actor", "2/10", "1", "1", "1", "e1"],
    ]


def test_all_addresses_are_listed_if_asked_for(furnished: str) -> None:
    _, _, *rows = mailbox("list", "--all", store=furnished)
    assert [row.split()[0] for row in rows] == ["service/attic", "service/desk", "service/hall"]


def test_parked_addresses_are_listed_alone_if_asked_for(furnished: str) -> None:
    _, _, *rows = mailbox("list", "--parked", store=furnished)
    assert [row.split()[0] for row in rows] == ["service/attic"]


def test_programs_are_told_one_object_an_address(furnished: str) -> None:
    attic, desk = objects(greenroom("mailbox", "list", "--json", "--store", furnished))
    assert (attic["address"], attic["parked"], attic["parked_detail"]) == (
        "service/attic", "undecodable", "its state is of version 3",
    )  # fmt: skip
    assert (desk["queued"], desk["ready"], desk["delayed"], desk["dead"], desk["durability"]) == (2, 1, 1, 1, "full")


def test_a_store_where_nothing_waits_says_so(url: str) -> None:
    greenroom("store", "migrate", "--store", url)
    (line,) = mailbox("list", store=url)
    assert line.endswith("durability full: nothing waits, is dead or is parked")


# --------------------------------------------------------------------------------------------------------- show


def test_an_address_is_shown_with_what_is_not_over(furnished: str) -> None:
    lines = mailbox("show", DESK, store=furnished)
    assert lines[0].endswith("durability full")
    assert {"address: service/desk", "owner: e1", "capacity: 10", "dead: 1"} <= set(lines)
    rows = [line.split(maxsplit=7) for line in lines if re.match(r"\s*(\d+\s+)?m\d", line)]
    assert [row[:4] for row in rows[:2]] == [["2", "m2", "dead", "Order"], ["3", "m3", "queued", "Order"]]
    assert rows[2][:3] == ["m4", "delayed", "Order"]
    assert "it was delivered 5 times and not handled" in " ".join(rows[0])
    assert "m1" not in "\n".join(lines[1:])  # the first names the store, whose place may be called anything


def test_all_messages_on_record_are_shown_if_asked_for(furnished: str) -> None:
    told = objects(greenroom("mailbox", "show", DESK, "--all", "--json", "--store", furnished))
    assert [(each["message_id"], each["status"]) for each in told] == [
        ("m1", "handled"), ("m2", "dead"), ("m3", "queued"), ("m4", "delayed"),
    ]  # fmt: skip


def test_why_an_address_is_parked_is_shown(furnished: str) -> None:
    lines = mailbox("show", "service/attic", store=furnished)
    assert {"parked: undecodable", "parked detail: its state is of version 3"} <= set(lines)


def test_more_messages_than_the_limit_are_said_to_be_there(furnished: str) -> None:
    lines = mailbox("show", DESK, "--limit", "2", store=furnished)
    assert "m3" in "\n".join(lines)
    assert "m4" not in "\n".join(lines)
    assert lines[-1] == "and more: --limit N shows more than 2"
    assert "more" not in mailbox("show", DESK, "--limit", "3", store=furnished)[-1]


def test_one_message_is_shown_with_what_became_of_it(furnished: str) -> None:
    lines = mailbox("show", DESK, "m2", store=furnished)
    assert {"message id: m2", "status: dead", "seq: 2", "reason: it was delivered 5 times and not handled"} <= set(
        lines
    )
    (told,) = objects(greenroom("mailbox", "show", DESK, "m1", "--json", "--store", furnished))
    assert (told["status"], told["type"], told["deliveries"]) == ("handled", "shop.orders:Order", 1)


@pytest.mark.parametrize("arguments", [[DESK], [DESK, "--all"], [DESK, "m1"], [DESK, "m2"]], ids=" ".join)
def test_contents_are_private_unless_they_are_asked_for(furnished: str, arguments: list[str]) -> None:
    for options in ([], ["--json"]):
        closed = greenroom("mailbox", "show", *arguments, *options, "--store", furnished)
        assert "secret" not in closed.output
        opened = greenroom("mailbox", "show", *arguments, *options, "--body", "--store", furnished)
        assert "a secret" in opened.stdout


def test_contents_are_shown_as_json_with_their_reply(furnished: str) -> None:
    lines = mailbox("show", DESK, "m1", "--body", store=furnished)
    shown = "\n".join(lines[lines.index("body:") :])
    body, _, reply = shown.removeprefix("body:\n").partition("\nreply:\n")
    assert json.loads(body) == {"$": "shop.orders:Order", "card": "a secret"}
    assert json.loads(reply) == {"total": 5}
    (told,) = objects(greenroom("mailbox", "show", DESK, "m1", "--body", "--json", "--store", furnished))
    assert (told["body"]["card"], told["reply"], told["error"]) == ("a secret", {"total": 5}, None)


def test_the_error_of_a_message_is_shown_as_text(url: str) -> None:
    async def fill(store: Committer) -> None:
        await live(store)
        desk = await owner(store, DESK)
        await desk.send("m1")
        await desk.handle(1, error=Codec().encode(LookupError("no stock")))

    with_store(url, fill)
    lines = mailbox("show", DESK, "m1", "--body", store=url)
    assert lines[lines.index("error:") + 1] == "LookupError: no stock"


def test_k18_what_is_no_json_is_shown_as_what_it_is(url: str) -> None:
    async def fill(store: Committer) -> None:
        await live(store)
        await owner(store, DESK)
        await done(store, message(DESK, "m1", b"\xff\x1b[2J\nhello"))

    with_store(url, fill)
    lines = mailbox("show", DESK, "m1", "--body", store=url)
    assert lines[-2:] == ["\\xff·[2J", "hello"]
    (told,) = objects(greenroom("mailbox", "show", DESK, "m1", "--body", "--json", "--store", url))
    assert told["body"] == "\\xff\x1b[2J\nhello"


def test_names_that_would_move_the_cursor_do_not(url: str) -> None:
    async def fill(store: Committer) -> None:
        await live(store)
        await owner(store, "[red]desk\x1b[2J")
        await done(store, message("[red]desk\x1b[2J", "m\x071"))

    with_store(url, fill)
    assert "[red]desk·[2J" in "\n".join(mailbox("list", store=url))
    assert "m·1" in "\n".join(mailbox("show", "[red]desk\x1b[2J", store=url))


def test_long_identities_are_whole_also_in_a_narrow_terminal(tmp_path: Path) -> None:
    async def fill(store: Committer) -> None:
        await live(store)
        await owner(store, "service/desk")
        await done(store, message("service/desk", "m" * 300))

    url = f"sqlite:///{tmp_path}/store.db"
    with_store(url, fill)
    piped = finished("mailbox", "show", DESK, "--store", url, cwd=tmp_path).stdout
    assert "m" * 300 in piped
    status, shown = in_terminal("mailbox", "show", DESK, "--store", url, cwd=tmp_path)
    assert status == 0
    assert len(re.findall("m", shown.partition("why dead")[2])) >= 300


# ------------------------------------------------------------------------------------------------------- settling


def test_a_dead_letter_is_requeued_and_another_dropped(url: str) -> None:
    async def fill(store: Committer) -> None:
        desk = await furnish(store)
        await done(store, desk.bury(3))

    with_store(url, fill)
    assert mailbox("requeue", DESK, "m2", store=url) == ["requeued m2"]
    assert objects(greenroom("mailbox", "drop", DESK, "m3", "--json", "--store", url)) == [
        {"address": DESK, "message_id": "m3", "done": "dropped"}
    ]
    told = objects(greenroom("mailbox", "show", DESK, "--all", "--json", "--store", url))
    assert {each["message_id"]: each["status"] for each in told} == {
        "m1": "handled", "m2": "queued", "m3": "dropped", "m4": "delayed",
    }  # fmt: skip


def test_several_are_settled_up_to_the_first_that_is_refused(furnished: str) -> None:
    result = greenroom("mailbox", "requeue", DESK, "m2", "m3", "m4", "--store", furnished)
    assert result.exit_code == 1
    assert result.stdout == "requeued m2\n"
    assert result.stderr == "greenroom mailbox requeue: the message 'm3' of 'service/desk' is no dead letter\n"


def test_a_parked_address_is_let_go(furnished: str) -> None:
    assert mailbox("unpark", "service/attic", store=furnished) == ["unparked service/attic"]
    assert objects(greenroom("mailbox", "list", "--parked", "--json", "--store", furnished)) == []


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["show", "service/nobody"], 2, "there is no address 'service/nobody'"),
        (["show", "service/nobody", "m1"], 2, "'service/nobody' has no message 'm1' on record"),
        (["show", DESK, "m9"], 2, "'service/desk' has no message 'm9' on record"),
        (["requeue", DESK, "m9"], 2, "'service/desk' has no message 'm9' on record"),
        (["drop", "service/nobody", "m1"], 2, "'service/nobody' has no message 'm1' on record"),
        (["drop", DESK, "m1"], 1, "is no dead letter"),
        (["unpark", "service/nobody"], 2, "there is no address 'service/nobody'"),
        (["unpark", DESK], 1, "'service/desk' is not parked"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_done_is_one_line(furnished: str, arguments: list[str], status: int, said: str) -> None:
    result = greenroom("mailbox", *arguments, "--store", furnished)
    assert result.exit_code == status
    line = complaint(result)
    assert line.startswith(f"greenroom mailbox {arguments[0]}: ")
    assert said in line


def test_a_dead_letter_is_not_requeued_into_a_full_mailbox(url: str) -> None:
    async def fill(store: Committer) -> None:
        await live(store)
        desk = await owner(store, DESK, capacity=1)
        await desk.send("m1")
        await done(store, desk.bury(1))
        await desk.send("m2")

    with_store(url, fill)
    result = greenroom("mailbox", "requeue", DESK, "m1", "--store", url)
    assert result.exit_code == 1
    assert "holds its 1 messages" in complaint(result)


# --------------------------------------------------------------------------------------- while a service runs


@pytest.mark.real_time
async def test_a_service_that_runs_hears_of_what_an_operator_does(url: str) -> None:
    async with open_store(url) as store:
        desk = await furnish(store)
        with store.wakeups() as news:
            requeue = partial(greenroom, "mailbox", "requeue", DESK, "m2", "--store", url)
            result = await anyio.to_thread.run_sync(requeue)
            assert (result.exit_code, result.stdout) == (0, "requeued m2\n")
            await news.wait()
        assert await desk.waiting() == ["m3", "m2"]
        record = await store.read(ReadAddress(address=DESK))
        assert record is not None
        assert record.owner == "e1"


# -------------------------------------------------------------------------------------------------------- its parts


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "60m"), (7200, "2h"), (86_400, "1d"), (10**7, "116d")],
)
def test_how_long_ago_is_said_in_the_unit_that_suits(seconds: int, said: str) -> None:
    assert seconds_between(datetime.fromtimestamp(0, UTC), datetime.fromtimestamp(seconds, UTC)) == said


@pytest.mark.parametrize("command", ["list", "show", "requeue", "drop", "unpark"])
def test_help_is_given_with_the_exit_statuses(command: str) -> None:
    result = greenroom("mailbox", command, "--help")
    assert result.exit_code == 0
    assert "Exit status: 0 when it was done" in result.stdout
