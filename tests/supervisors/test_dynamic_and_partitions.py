"""Supervisors whose children are made from one template: any number of them, or a fixed number by key."""

from __future__ import annotations

import functools

import anyio
import pytest

import greenroom as gr
from tests.conformance.probes import Crash, End, Log, Probe, Touch, crash, settle, states


def pool(log: Log, **options: object) -> gr.DynamicSupervisor:
    return gr.DynamicSupervisor("pool", functools.partial(Probe, log), **options)  # type: ignore[arg-type]


async def test_dynamic_children_are_named_by_number_and_get_the_callers_arguments_after_the_templates() -> None:
    log = Log()
    supervisor = gr.DynamicSupervisor("pool", Probe, log, "x")
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        first = await runtime.ref("sup/pool").start_child(1)
        second = await runtime.ref("sup/pool").start_child(1, 2)
        assert (first.path, second.path) == ("sup/pool/1", "sup/pool/2")
        assert (await runtime.ref("sup/pool").get_childspec("2")).args == (log, "x", 1, 2)


async def test_a_number_is_not_used_again() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", pool(log))) as runtime:
        supervisor = runtime.ref("sup/pool")
        await supervisor.terminate_child((await supervisor.start_child("x")).path.rpartition("/")[2])
        assert (await supervisor.start_child("y")).path == "sup/pool/2"


async def test_a_child_spec_as_a_template_gives_its_options_to_every_child() -> None:
    log = Log()
    template = gr.Child("probe", functools.partial(Probe, log), restart="temporary", shutdown=2.0)
    async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("pool", template))) as runtime:
        ref = await runtime.ref("sup/pool").start_child("x")
        spec = await runtime.ref("sup/pool").get_childspec("1")
        assert (spec.name, spec.restart, spec.shutdown) == ("1", "temporary", 2.0)
        await crash(ref)
        assert await states(runtime.ref("sup/pool")) == {}


async def test_a_transient_dynamic_child_that_has_finished_is_forgotten() -> None:
    log = Log()
    template = gr.Child("probe", functools.partial(Probe, log), restart="transient")
    async with gr.Runtime(gr.Supervisor("sup", gr.DynamicSupervisor("pool", template))) as runtime:
        ref = await runtime.ref("sup/pool").start_child("x")
        ref.tell(End())
        await settle()
        assert await states(runtime.ref("sup/pool")) == {}


async def test_all_dynamic_children_stop_at_once_and_the_longest_stop_is_what_it_takes() -> None:
    log = Log()
    for name, seconds in (("a", 1.0), ("b", 4.0), ("c", 2.0)):
        log.next_stops(name, seconds)
    async with gr.Runtime(gr.Supervisor("sup", pool(log))) as runtime:
        for name in "abc":
            await runtime.ref("sup/pool").start_child(name)
        before = anyio.current_time()
        await runtime.stop()
        assert anyio.current_time() - before == 4.0


async def test_counts_of_a_dynamic_supervisor_speak_of_one_spec() -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", pool(log))) as runtime:
        supervisor = runtime.ref("sup/pool")
        assert await supervisor.count_children() == gr.ChildCounts(specs=1, active=0, supervisors=0, workers=0)
        for name in "abc":
            await supervisor.start_child(name)
        assert await supervisor.count_children() == gr.ChildCounts(specs=1, active=3, supervisors=0, workers=3)


@pytest.mark.parametrize("call", ["restart_child", "delete_child"])
async def test_a_dynamic_supervisor_keeps_no_specs_to_restart_or_delete(call: str) -> None:
    log = Log()
    async with gr.Runtime(gr.Supervisor("sup", pool(log))) as runtime:
        await runtime.ref("sup/pool").start_child("x")
        with pytest.raises(gr.BadSpec, match=call):
            await getattr(runtime.ref("sup/pool"), call)("1")


async def test_the_intensity_of_a_dynamic_supervisor_is_shared_by_its_children() -> None:
    log = Log()
    supervisor = pool(log, intensity=1, restart="temporary")
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        refs = [await runtime.ref("sup/pool").start_child(name) for name in "ab"]
        await crash(*refs)
        assert await states(runtime.ref("sup")) == {}


async def test_a_partition_supervisor_runs_one_child_for_each_partition() -> None:
    log = Log()
    supervisor = gr.PartitionSupervisor("shards", log.child("shard"), partitions=3)
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        assert await states(runtime.ref("sup/shards")) == dict.fromkeys("012", "running")


async def test_a_whole_number_goes_to_the_partition_of_its_remainder() -> None:
    log = Log()
    supervisor = gr.PartitionSupervisor("shards", log.child("shard"), partitions=3)
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        shards = runtime.ref("sup/shards")
        assert [shards.partition(key).path[-1] for key in (0, 1, 2, 3, 7, -1)] == ["0", "1", "2", "0", "1", "2"]


@pytest.mark.parametrize(("key", "number"), [("alice", "3"), ("bob", "0"), (b"bob", "0"), ("", "0")])
async def test_a_text_goes_to_the_same_partition_in_every_process(key: str | bytes, number: str) -> None:
    log = Log()
    supervisor = gr.PartitionSupervisor("shards", log.child("shard"), partitions=4)
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        assert runtime.ref("sup/shards").partition(key).path == f"sup/shards/{number}"


async def test_a_partition_keeps_its_address_when_it_is_restarted() -> None:
    log = Log()
    supervisor = gr.PartitionSupervisor("shards", log.child("shard"), partitions=2)
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        ref = runtime.ref("sup/shards").partition(1)
        ref.tell(Crash())
        assert await runtime.ref("sup/shards").partition(1).ask(Touch()) == 1
        assert runtime.ref("sup/shards").partition(1) is ref


async def test_partitions_stop_in_reverse_like_any_children() -> None:
    log = Log()
    shard = gr.Child("shard", Probe, log, "shard", restart="transient")
    supervisor = gr.PartitionSupervisor("shards", shard, partitions=3)
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        events = runtime.events()
        await runtime.stop()
        ended = [event.path for event in events.pending() if isinstance(event, gr.ActorEnded)]
        assert ended == ["sup/shards/2", "sup/shards/1", "sup/shards/0", "sup/shards", "sup"]


async def test_the_number_of_partitions_is_fixed() -> None:
    log = Log()
    supervisor = gr.PartitionSupervisor("shards", log.child("shard"), partitions=2)
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        with pytest.raises(gr.BadSpec, match="partitions are fixed"):
            await runtime.ref("sup/shards").start_child(log.child("another"))
        await runtime.ref("sup/shards").terminate_child("0")
        with pytest.raises(gr.BadSpec, match="partitions are fixed"):
            await runtime.ref("sup/shards").delete_child("0")
        await runtime.ref("sup/shards").restart_child("0")
        assert await states(runtime.ref("sup/shards")) == dict.fromkeys("01", "running")


async def test_a_key_of_another_type_is_refused() -> None:
    log = Log()
    supervisor = gr.PartitionSupervisor("shards", log.child("shard"), partitions=2)
    async with gr.Runtime(gr.Supervisor("sup", supervisor)) as runtime:
        with pytest.raises(gr.BadSpec, match="int, a str or bytes"):
            runtime.ref("sup/shards").partition(1.5)
        with pytest.raises(gr.NotASupervisor):
            runtime.ref("sup").partition(1)


@pytest.mark.parametrize("partitions", [0, -1, 1.5, True, None])
def test_a_number_of_partitions_that_cannot_work_is_refused(partitions: object) -> None:
    with pytest.raises(gr.BadSpec, match="partitions"):
        gr.PartitionSupervisor("shards", Log().child("shard"), partitions=partitions)  # type: ignore[arg-type]
