"""A service with a status page: what `runtime.tree()` shows, over HTTP, for a monitor or a person.

    python examples/status_page.py         # then open http://127.0.0.1:8000/

What there is to see:

* **The whole process is one tree.** `gr.run` runs it until Ctrl-C or SIGTERM, and its status is that of the process.
* **A server is an actor.** It listens in its own nursery; when it fails, it is restarted like any other child.
* **The tree is a value.** A page is made of it in a few lines, and nothing of the service is touched. Its status is 503 when
  an actor that should run does not.

The HTTP in here is just enough for a browser. In a service that has a web framework, run the tree in its lifespan instead:
`async with gr.Runtime(tree) as runtime: ...`.
"""

from __future__ import annotations

import json
import random
from functools import partial
from http import HTTPStatus

import anyio
import attrs
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

import greenroom as gr

WELL = {gr.State.RUNNING, gr.State.DOWN}
"""A child that is down has ended for good, and was meant to."""


@attrs.frozen
class Tick(gr.Message[None]):
    pass


class Worker(gr.Actor):
    """Does something every now and then, and fails at it every now and then."""

    async def on_start(self) -> None:
        self.context.every(0.5, Tick())

    @gr.handles
    async def tick(self, message: Tick) -> None:
        await anyio.sleep(random.random())
        if random.random() < 0.1:
            raise RuntimeError("bad luck")


@attrs.frozen
class Port(gr.Message[int]):
    """Which port does the page listen on?"""


class StatusPage(gr.Actor):
    def __init__(self, port: int) -> None:
        self.port = port

    async def on_start(self) -> None:
        self.listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port)
        self.context.nursery.start_soon(partial(self.listener.serve, self.answer))

    async def on_stop(self, exit: gr.Exit) -> None:
        await self.listener.aclose()

    @gr.handles
    async def tell_port(self, message: Port) -> int:
        return int(self.listener.extra(SocketAttribute.local_port))

    async def answer(self, stream: SocketStream) -> None:
        async with stream:
            with anyio.move_on_after(5.0):  # whoever is slow or broken is left, and harms nobody
                try:
                    await BufferedByteReceiveStream(stream).receive_until(b"\r\n\r\n", 10_000)
                    await stream.send(page(self.context.runtime.tree()))
                except (anyio.BrokenResourceError, anyio.IncompleteRead, anyio.DelimiterNotFound):
                    return


def page(tree: gr.TreeNode) -> bytes:
    """The answer to any request, whole."""
    actors = [
        {
            "path": node.path,
            "state": node.state.value,
            "restarts": node.restarts,
            "waiting": node.mailbox_depth,
            "in hand": node.message_type,
            "last error": node.last_error,
        }
        for node in tree.walk()
    ]
    well = all(node.state in WELL for node in tree.walk())
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    body = json.dumps({"well": well, "actors": actors}, indent=2).encode()
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


def tree(port: int = 8000) -> gr.Supervisor:
    workers = (gr.Child(f"worker-{n}", Worker) for n in range(3))
    return gr.Supervisor(
        "service",
        gr.Supervisor("workers", *workers, intensity=20, period=10.0, backoff=gr.Backoff(1.0)),
        gr.Child("page", StatusPage, port, backoff=gr.Backoff(0.5)),
        intensity=10,
        period=60.0,
    )


if __name__ == "__main__":
    raise SystemExit(gr.run(tree()))
