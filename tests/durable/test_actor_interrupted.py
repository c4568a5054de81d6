"""A durable actor with everything it can do, killed at every point of what it commits, and once more while it recovers (R35)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import attrs
import pytest

import greenroom as gr
from greenroom.testing import interrupt_everywhere
from tests.durable.helpers import Boom
from tests.durable.puppets import Do, Listener, Look, Puppet, Script

if TYPE_CHECKING:
    from greenroom.runtime.durable.relay import OutboxMessage
    from greenroom.testing import Life
    from greenroom.testing.virtual_clock import Backend
    from tests.persistence.postgres.servers import Server


async def scenario(life: Life) -> None:
    """The client asks until it is answered; the world outside keeps what it was told."""
    heard: list[str] = life.kept.setdefault("heard", [])
    posted: list[str] = life.kept.setdefault("posted", [])
    crashes: list[str] = life.kept.setdefault("crashes", ["once"])

    async def post(message: OutboxMessage) -> None:
        posted.append(message.message_id)

    async def everything(puppet: Puppet) -> object:
        context = puppet.context
        context.runtime.ref("shop/listener").tell(Do("told"))
        await context.runtime.ref("shop/other").send(Do("sent"))
        answer = await context.runtime.ref("shop/pool/key").ask(Do("asked"), timeout=None)
        await context.runtime.ref("shop/pool/key").send(Do("sent too"))
        context.after(20, Do("tick"), key="timer")
        context.publish("post", Do("published"))
        if crashes:
            raise Boom(crashes.pop())
        return answer

    async def answer(puppet: Puppet) -> object:
        return 42

    script: Script = {"go": everything, "asked": answer}
    tree = gr.Supervisor(
        "shop",
        gr.Child("puppet", Puppet, script),
        gr.Child("other", Puppet, script),
        gr.Child("listener", Listener, heard),
        gr.DurableActors("pool", Puppet, script, idle=10.0),
        intensity=100,
    )
    store = attrs.evolve(life.store, sweep=50.0)
    async with gr.Runtime(tree, store=store, destinations={"post": post}) as runtime:
        assert await runtime.ref("shop/puppet").ask(Do("go"), message_id="go", timeout=None) == 42
        await anyio.sleep(120)
        logs = {
            path: await runtime.ref(f"shop/{path}").ask(Look(), message_id=f"look {life.number}", timeout=None)
            for path in ("puppet", "other", "pool/key")
        }
    if life.alive:
        assert logs == {"puppet": ("go", "tick"), "other": ("sent",), "pool/key": ("asked", "sent too")}
        assert set(posted) == {"shop/puppet|go|0|outside"}  # at least once
        assert heard in ([], ["told"])  # at most once


def test_r35_wherever_a_life_ends_all_of_it_is_done_once_on_sqlite(backend: Backend) -> None:
    tried = interrupt_everywhere(scenario, backend=backend, sample=(3, 0.15))
    assert len(tried.trials) > 12
    assert len(tried.unmet) < len(tried.trials) / 4


def test_r35_wherever_a_life_ends_all_of_it_is_done_once_on_postgres(backend: Backend, postgres: Server) -> None:
    assert interrupt_everywhere(scenario, server=postgres.url, backend=backend, sample=(5, 0.05)).trials


@pytest.mark.full
def test_r35_at_every_point_on_sqlite(backend: Backend) -> None:
    tried = interrupt_everywhere(scenario, backend=backend)
    assert len(tried.trials) > 100


@pytest.mark.full
def test_r35_at_many_points_on_postgres(backend: Backend, postgres: Server) -> None:
    tried = interrupt_everywhere(scenario, server=postgres.url, backend=backend, sample=(9, 0.4))
    assert len(tried.trials) > 40


@pytest.mark.full
def test_r35_killed_again_while_it_recovers(backend: Backend) -> None:
    tried = interrupt_everywhere(scenario, backend=backend, twice=True, sample=(7, 0.09))
    assert len(tried.trials) > 25
