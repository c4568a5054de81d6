"""Fetch many pages from a server that drops connections and allows only so many requests a second.

    python examples/rate_limited_fetcher.py

What there is to see:

* **A connection is an actor.** It connects when it starts. When the server hangs up, it crashes; its supervisor starts it
  again after a growing delay, and it connects again. There is no code for reconnecting.
* **A rate is an actor.** Whoever is about to send a request asks the limiter first. It answers one request at a time, and
  waits before each answer: that is all there is to it.
* **Whoever wants something asks again.** To fetch a page twice does no harm, so a crash in the middle is simply asked
  again. For what must not happen twice, look first whether it has happened.

The server is part of the program, so nothing outside is needed. It hangs up in the middle of every sixth request.
"""

from __future__ import annotations

import contextlib
from functools import partial

import anyio
import attrs
from anyio.abc import SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

import greenroom as gr

PAGES = 24
RATE = 200.0
"""Requests a second."""
CONNECTIONS = 3


@attrs.frozen
class Permit(gr.Message[None]):
    """May I send a request? The reply is the permission."""


@attrs.frozen
class Fetch(gr.Message[str]):
    page: int


class Limiter(gr.Actor):
    """Gives out permits, at most `rate` a second."""

    def __init__(self, rate: float) -> None:
        self.interval = 1 / rate
        self.next = 0.0

    @gr.handles
    async def permit(self, message: Permit) -> None:
        await anyio.sleep_until(self.next)
        self.next = anyio.current_time() + self.interval


class Connection(gr.Actor):
    """One connection to the server. Any error on it is a crash."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def on_start(self) -> None:
        self.limiter = self.context.runtime.ref("crawl/net/limiter")
        self.stream: SocketStream = await anyio.connect_tcp("127.0.0.1", self.port)
        self.lines = BufferedByteReceiveStream(self.stream)

    async def on_stop(self, exit: gr.Exit) -> None:
        await self.stream.aclose()

    @gr.handles
    async def fetch(self, message: Fetch) -> str:
        await self.limiter.ask(Permit(), timeout=None)
        await self.stream.send(f"GET {message.page}\n".encode())
        with anyio.fail_after(5.0):
            answer = await self.lines.receive_until(b"\n", 1000)
        return answer.decode()


class Crawler(gr.Actor):
    """Fetches all pages over the pool of connections, then ends, and the tree ends with it."""

    def __init__(self, pages: int, results: dict[int, str]) -> None:
        self.pages, self.results = pages, results
        self.missing = pages

    async def on_start(self) -> None:
        pool = self.context.runtime.ref("crawl/net/pool")
        for page in range(self.pages):
            self.context.nursery.start_soon(self.fetch, pool.partition(page), page)

    async def fetch(self, connection: gr.Ref, page: int) -> None:
        while page not in self.results:
            # When the connection is gone it will come back, and what is asked meanwhile waits in its mailbox.
            with contextlib.suppress(gr.ActorCrashed, gr.AskTimeout):
                self.results[page] = await connection.ask(Fetch(page), timeout=10.0)
        self.missing -= 1
        if self.missing == 0:
            self.context.stop()


def tree(port: int, results: dict[int, str]) -> gr.Supervisor:
    connection = gr.Child("connection", Connection, port, backoff=gr.Backoff(0.01, maximum=1.0))
    return gr.Supervisor(
        "crawl",
        gr.Supervisor(
            "net",
            gr.Child("limiter", Limiter, RATE),
            gr.PartitionSupervisor("pool", connection, partitions=CONNECTIONS, intensity=100, period=10.0),
        ),
        gr.Child("crawler", Crawler, PAGES, results, restart="transient", significant=True),
        auto_shutdown="any_significant",
    )


class FlakyServer:
    """Answers `GET n` by a line, and hangs up instead at every sixth request."""

    def __init__(self) -> None:
        self.requests = 0
        self.hung_up = 0

    async def serve(self, stream: SocketStream) -> None:
        lines = BufferedByteReceiveStream(stream)
        async with stream:
            while True:
                try:
                    request = await lines.receive_until(b"\n", 1000)
                except (anyio.IncompleteRead, anyio.BrokenResourceError):
                    return  # the other side has closed
                self.requests += 1
                if self.requests % 6 == 0:
                    self.hung_up += 1
                    return
                await stream.send(b"contents of page " + request.removeprefix(b"GET ") + b"\n")


async def main() -> None:
    server, results = FlakyServer(), dict[int, str]()
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0) as listener:
        port = int(listener.extra(anyio.abc.SocketAttribute.local_port))
        async with anyio.create_task_group() as group:
            group.start_soon(partial(listener.serve, server.serve))
            async with gr.Runtime(tree(port, results)) as runtime:
                await runtime.wait()
            group.cancel_scope.cancel()
    print(f"{len(results)} pages; the server got {server.requests} requests and hung up {server.hung_up} times")


if __name__ == "__main__":
    anyio.run(main)
