"""LangGraph: a graph of ten nodes whose checkpoints are saved before the next node runs, on SQLite and on the same PostgreSQL."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Any, TypedDict

from benchmarks.databases import Databases, Kind
from benchmarks.floor import STEPS, Result
from benchmarks.harness import Figures, p50, p99


class State(TypedDict):
    number: int
    text: str


def measure(databases: Databases, kind: Kind, at_once: int, n: int) -> Figures:
    """Steps per second, of about n in runs of ten nodes, and how long a run took (ms)."""
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    if kind == "postgres":
        return asyncio.run(_steps(databases.server, at_once, n))
    with databases.fresh_file() as path:
        return asyncio.run(_steps(str(path), at_once, n))


async def _saver(stack: AsyncExitStack, where: str) -> Any:
    if where.startswith("postgresql:"):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

        saver: Any = await stack.enter_async_context(AsyncPostgresSaver.from_conn_string(where))
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(where))
        await saver.conn.execute("PRAGMA journal_mode=WAL")
        await saver.conn.execute("PRAGMA synchronous=FULL")
    await saver.setup()
    return saver


async def _steps(where: str, at_once: int, n: int) -> Figures:
    from langgraph.graph import END, START, StateGraph

    async def node(state: State) -> dict[str, object]:
        done = Result(state["number"] + 1)
        return {"number": done.number, "text": done.text}

    builder: Any = StateGraph(State)
    names = [f"step{number}" for number in range(STEPS)]
    for name in names:
        builder.add_node(name, node)
    for one, other in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(one, other)
    latencies: list[float] = []
    async with AsyncExitStack() as stack:
        graph = builder.compile(checkpointer=await _saver(stack, where))

        async def lane(number: int, rounds: int) -> None:
            for again in range(rounds):
                begin = perf_counter()
                config = {"configurable": {"thread_id": f"{begin}-{number}-{again}"}}
                done = await graph.ainvoke({"number": 0, "text": ""}, config, durability="sync")
                assert done["number"] == STEPS
                latencies.append((perf_counter() - begin) * 1000)

        await lane(-1, 1)
        latencies.clear()
        rounds = max(1, n // STEPS // at_once)
        begin = perf_counter()
        await asyncio.gather(*(lane(number, rounds) for number in range(at_once)))
        elapsed = perf_counter() - begin
    stem = f"steps_{at_once}"
    return {stem: at_once * rounds * STEPS / elapsed, f"{stem}_p50": p50(latencies), f"{stem}_p99": p99(latencies)}
