"""Actor classes that let nobody set their attributes have a context all the same."""

from __future__ import annotations

import dataclasses

import attrs
import pytest

import greenroom as gr


@attrs.frozen
class Where(gr.Message[str]):
    pass


@attrs.frozen
class ByAttrs(gr.Actor):
    greeting: str = "at"

    @gr.handles
    async def where(self, message: Where) -> str:
        return f"{self.greeting} {self.context.ref.path}"


@dataclasses.dataclass(frozen=True, slots=True)
class ByDataclass(gr.Actor):
    greeting: str = "at"

    @gr.handles
    async def where(self, message: Where) -> str:
        return f"{self.greeting} {self.context.ref.path}"


class Thread(gr.Actor):
    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    @gr.handles
    def where(self, message: Where) -> str:
        return f"at {self.context.ref.path}"


@pytest.mark.parametrize("factory", [ByAttrs, ByDataclass])
async def test_a_frozen_actor_runs_and_is_restarted(factory: type[gr.Actor]) -> None:
    async with gr.Runtime(gr.Supervisor("app", gr.Child("frozen", factory))) as runtime:
        assert await runtime.ref("app/frozen").ask(Where()) == "at app/frozen"
        await runtime.ref("app").terminate_child("frozen")
        await runtime.ref("app").restart_child("frozen")
        assert await runtime.ref("app/frozen").ask(Where()) == "at app/frozen"


async def test_a_frozen_actor_runs_on_a_thread() -> None:
    async with gr.Runtime(gr.Supervisor("app", gr.Child("frozen", Thread, isolation="thread"))) as runtime:
        assert await runtime.ref("app/frozen").ask(Where()) == "at app/frozen"
