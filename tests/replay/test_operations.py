"""Operations as they are declared, and as control code calls them: mypy checks the types of this file."""

from __future__ import annotations

import pytest

from greenroom.runtime.replay import Effect, Operation, OperationDef, RetryPolicy, Task, operation
from tests.replay.stage import staged

OPERATION = Operation(key="key", id="root#1", invocation=1)


@operation(effect=Effect.KEYED, retry=RetryPolicy(invocations=5, within=60.0), timeout=10.0)
async def send_mail(op: Operation, to: str, *, body: str = "") -> str:
    return f"{op.key}: {to} {body}"


@operation(effect=Effect.SAFE, name="plain")
async def plan(topic: str) -> list[str]:
    return [topic]


class Desk:
    def __init__(self, name: str) -> None:
        self.name = name

    @operation(effect=Effect.ONCE)
    async def stamp(self, paper: str) -> str:
        return f"{self.name} {paper}"

    @operation(effect=Effect.RECONCILED)
    async def file(self, op: Operation, paper: str) -> str:
        return f"{self.name} {op.id} {paper}"


async def test_an_operation_is_not_callable_and_its_function_is_there_for_tests() -> None:
    assert not callable(send_mail)
    assert await send_mail.function(OPERATION, "a@example.org") == "key: a@example.org "


def test_an_operation_says_what_was_declared() -> None:
    assert (send_mail.name, send_mail.effect, send_mail.timeout) == ("send_mail", Effect.KEYED, 10.0)
    assert send_mail.retry == RetryPolicy(invocations=5, within=60.0)
    assert (plan.name, plan.retry, plan.timeout) == ("plain", RetryPolicy(), None)


def test_options_for_one_call_leave_the_others_as_they_are() -> None:
    other = send_mail.using(timeout=1.0)
    assert (other.timeout, other.retry, other.name) == (1.0, send_mail.retry, "send_mail")
    assert send_mail.using(retry=RetryPolicy(invocations=2)).timeout == 10.0
    assert send_mail.timeout == 10.0


async def test_an_invocation_is_given_to_a_function_that_declares_it() -> None:
    assert await send_mail.invoke(OPERATION, ("a@example.org",), {"body": "hello"}) == "key: a@example.org hello"
    assert await plan.invoke(OPERATION, ("birds",), {}) == ["birds"]


async def test_a_method_may_be_an_operation() -> None:
    desk = Desk("front")
    assert await desk.stamp.invoke(OPERATION, ("form",), {}) == "front form"
    assert await desk.file.invoke(OPERATION, ("form",), {}) == "front root#1 form"
    assert isinstance(Desk.stamp, OperationDef)


async def test_control_code_runs_methods_and_keyword_arguments_by_their_types() -> None:
    desk = Desk("front")

    async def perform(task: Task) -> list[str]:
        parts: list[str] = await task.run(plan, "birds")
        stamped: str = await task.run(desk.stamp, "form")
        filed: str = await task.run(desk.file, "form")
        sent: str = await task.run(send_mail.using(timeout=1.0), "a@example.org", body="x")
        return [*parts, stamped, filed, sent]

    async with staged(perform) as stage:
        for number, name in enumerate(["plain", "stamp", "file", "send_mail"], 1):
            assert stage.call(f"root#{number}").name == name
            await stage.succeed(f"root#{number}", [name] if number == 1 else name)
        assert stage.result == ["plain", "stamp", "file", "send_mail"]


@pytest.mark.parametrize("options", [{"invocations": 0}, {"within": 0.0}])
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        RetryPolicy(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be"):
        operation(effect=Effect.SAFE, timeout=0)(plan.function)
