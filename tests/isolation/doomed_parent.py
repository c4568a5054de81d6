"""A program that a test kills: `python -m tests.isolation.doomed_parent BACKEND PIPE`. Everything that it has started holds the pipe."""

from __future__ import annotations

import sys

import anyio

import greenroom as gr
from tests.isolation import workers
from tests.isolation.workers import PlainPuppet, do


async def main(pipe: str) -> None:
    names = ("idle", "hanging", "interpreter")
    children = [gr.Child(name, PlainPuppet, isolation="process", shutdown=None) for name in names]
    witness = gr.Child("witness", workers.Witness, [], [])
    async with gr.Runtime(gr.Supervisor("service", gr.Parallel(*children), witness)) as runtime:
        idle, hanging, interpreter = (runtime.ref(f"service/{name}") for name in names)
        await idle.ask(do(workers.keep_hold, pipe))
        await idle.ask(do(workers.fork_stubborn, pipe))
        await hanging.ask(do(workers.keep_hold, pipe))
        hanging.tell(do(workers.hang, runtime.ref("service/witness")))
        await interpreter.ask(do(workers.fork_stubborn, pipe))
        interpreter.tell(do(workers.hold_the_interpreter, pipe))
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[2], backend=sys.argv[1])
