"""`context.watch`: one `Terminated` for each registration, when an incarnation has really ended (DESIGN section 3, P3, P18)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import greenroom as gr
from tests.actors.helpers import Boom, Do, Fail, Hold, Note, Puppet, idle, raised, tree


def watch(path: str, times: int = 1) -> Do:
    """A message that makes the puppet watch another actor."""

    async def watch_it(self: Puppet) -> None:
        for _ in range(times):
            self.context.watch(self.context.runtime.ref(path))

    return Do(watch_it)


def unwatch(path: str) -> Do:
    async def unwatch_it(self: Puppet) -> None:
        self.context.unwatch(self.context.runtime.ref(path))

    return Do(unwatch_it)


class Pair:
    """`app/w`, which watches, and `app/t`, the target, whose options are given. `log` is what the watcher was told."""

    def __init__(self, actor: type[Puppet] = Puppet, **options: Any) -> None:
        self.log: list[Any] = []
        self._manager = tree(gr.Child("t", actor, **options), gr.Child("w", Puppet, self.log))

    async def __aenter__(self) -> Pair:
        self.runtime = await self._manager.__aenter__()
        self.watcher, self.target = self.runtime.ref("app/w"), self.runtime.ref("app/t")
        self.supervisor = self.runtime.ref("app")
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._manager.__aexit__(*error)

    async def exits(self) -> list[tuple[str, int]]:
        """The ends that the watcher was told of: kind and incarnation."""
        await idle()
        return [(told.exit.kind, told.incarnation) for told in self.log if isinstance(told, gr.Terminated)]


async def test_a_watcher_is_told_of_a_crash_with_its_cause_and_incarnation() -> None:
    boom = Boom("of this")
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        await raised(pair.target.ask(Fail(boom)))
        await idle()
        assert pair.log == [gr.Terminated(pair.target, gr.Exit("error", boom), 1)]


async def test_a_watcher_is_told_of_a_normal_end() -> None:
    async with Pair(restart="transient") as pair:
        await pair.watcher.ask(watch("app/t"))
        pair.target.tell(Fail(gr.Stop()))
        assert await pair.exits() == [("normal", 1)]


async def test_a_watcher_is_told_of_a_stop_on_request() -> None:
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        await pair.supervisor.terminate_child("t")
        assert await pair.exits() == [("shutdown", 1)]


async def test_a_watcher_is_told_that_its_target_was_killed() -> None:
    async with Pair(shutdown="kill") as pair:
        await pair.watcher.ask(watch("app/t"))
        await pair.supervisor.terminate_child("t")
        assert await pair.exits() == [("killed", 1)]


async def test_a_watch_is_for_one_incarnation() -> None:
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        for _ in range(3):
            await raised(pair.target.ask(Fail(Boom())))
        assert await pair.exits() == [("error", 1)]


async def test_a_watch_can_be_renewed_for_the_next_incarnation() -> None:
    async with Pair() as pair:
        for _ in range(3):
            await pair.watcher.ask(watch("app/t"))
            await raised(pair.target.ask(Fail(Boom())))
            await idle()
        assert await pair.exits() == [("error", 1), ("error", 2), ("error", 3)]


async def test_a_watch_of_an_ended_actor_is_answered_at_once_with_how_it_ended() -> None:
    async with Pair(restart="transient") as pair:
        pair.target.tell(Fail(gr.Stop()))
        await idle()
        await pair.watcher.ask(watch("app/t"))
        assert await pair.exits() == [("normal", 1)]


async def test_a_watch_of_a_child_that_is_kept_but_has_never_started_is_answered_at_once() -> None:
    class Ignores(Puppet):
        async def on_start(self) -> None:
            raise gr.Ignore

    async with Pair(Ignores) as pair:
        await pair.watcher.ask(watch("app/t"))
        assert await pair.exits() == [("normal", 1)]


async def test_a_watch_while_the_target_waits_for_its_restart_means_the_next_incarnation() -> None:
    async with Pair(backoff=gr.Backoff(10.0, jitter=0.0)) as pair:
        pair.target.tell(Fail(Boom()))
        await idle()
        await pair.watcher.ask(watch("app/t"))
        await anyio.sleep(11)
        assert await pair.exits() == []
        await raised(pair.target.ask(Fail(Boom())))
        assert await pair.exits() == [("error", 2)]


async def test_a_watch_for_a_next_incarnation_that_never_comes_is_answered() -> None:
    async with Pair(backoff=gr.Backoff(10.0, jitter=0.0)) as pair:
        pair.target.tell(Fail(Boom()))
        await idle()
        await pair.watcher.ask(watch("app/t"))
        await pair.supervisor.terminate_child("t")
        assert await pair.exits() == [("error", 1)]


async def test_a_watch_in_the_moment_of_the_end_is_answered() -> None:
    async with Pair(restart="temporary") as pair, anyio.create_task_group() as group:
        events = pair.runtime.events()

        async def watch_at_the_end() -> None:
            async for event in events:
                if isinstance(event, gr.ActorEnded):
                    pair.watcher._cell.life.context.watch(pair.target)  # type: ignore[union-attr]
                    return

        group.start_soon(watch_at_the_end)
        await idle()
        pair.target.tell(Fail(Boom()))
        assert await pair.exits() == [("error", 1)]


async def test_watching_twice_is_one_registration() -> None:
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t", times=3))
        await pair.watcher.ask(watch("app/t"))
        await raised(pair.target.ask(Fail(Boom())))
        assert await pair.exits() == [("error", 1)]


async def test_watching_an_ended_actor_twice_is_one_registration() -> None:
    async with Pair(restart="transient") as pair:
        pair.target.tell(Fail(gr.Stop()))
        await idle()
        await pair.watcher.ask(watch("app/t", times=3))
        assert await pair.exits() == [("normal", 1)]


async def test_each_of_many_watchers_is_told() -> None:
    logs: list[list[Any]] = [[] for _ in range(10)]
    watchers = [gr.Child(f"w{number}", Puppet, log) for number, log in enumerate(logs)]
    async with tree(gr.Child("t", Puppet), *watchers) as runtime:
        for number in range(10):
            await runtime.ref(f"app/w{number}").ask(watch("app/t"))
        await raised(runtime.ref("app/t").ask(Fail(Boom())))
        await idle()
        assert [len(log) for log in logs] == [1] * 10


async def test_an_actor_may_watch_itself_and_its_next_incarnation_is_told_nothing() -> None:
    log: list[Any] = []
    async with tree(gr.Child("a", Puppet, log)) as runtime:
        await runtime.ref("app/a").ask(watch("app/a"))
        await raised(runtime.ref("app/a").ask(Fail(Boom())))
        await idle()
        assert log == []


async def test_a_supervisor_can_be_watched() -> None:
    log: list[Any] = []
    inner = gr.Supervisor("inner", gr.Child("t", Puppet), intensity=0, restart="temporary")
    async with tree(inner, gr.Child("w", Puppet, log)) as runtime:
        target = runtime.ref("app/inner")
        await runtime.ref("app/w").ask(watch("app/inner"))
        await raised(runtime.ref("app/inner/t").ask(Fail(Boom())))
        await idle()
        [told] = log
        assert (told.ref, told.exit.kind) == (target, "shutdown")
        assert isinstance(told.exit.cause, gr.RestartLimitExceeded)


# --------------------------------------------------------------------------------------------------------- the end


async def test_p3_a_watcher_is_told_only_when_nothing_of_the_target_runs_any_more() -> None:
    class Slow(Puppet):
        async def on_stop(self, exit: gr.Exit) -> None:
            await anyio.sleep(1)

    async with Pair(Slow) as pair:
        await pair.watcher.ask(watch("app/t"))
        pair.target.tell(Fail(Boom()))
        await anyio.sleep(0.9)
        assert await pair.exits() == []
        await anyio.sleep(0.2)
        assert await pair.exits() == [("error", 1)]


async def test_a_watcher_is_told_before_the_next_incarnation_starts() -> None:
    story: list[Any] = []

    class Target(Puppet):
        async def on_start(self) -> None:
            if self.context.incarnation > 1:
                await anyio.sleep(1)
                story.append("started again")

    class Watcher(Puppet):
        @gr.handles
        async def terminated(self, message: gr.Terminated) -> None:
            story.append("told")

    async with tree(gr.Child("t", Target), gr.Child("w", Watcher)) as runtime:
        await runtime.ref("app/w").ask(watch("app/t"))
        await raised(runtime.ref("app/t").ask(Fail(Boom())))
        await runtime.ref("app/t").ask(Note("x"))
        assert story == ["told", "started again"]


async def test_what_the_target_sent_before_its_end_comes_before_terminated() -> None:
    async def send_and_crash(self: Puppet) -> None:
        for number in range(3):
            self.context.runtime.ref("app/w").tell(Note(number))
        raise Boom

    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        pair.target.tell(Do(send_and_crash))
        await idle()
        assert [*pair.log[:3], type(pair.log[3])] == [0, 1, 2, gr.Terminated]


# ------------------------------------------------------------------------------------------------------- unwatching


async def test_after_unwatch_nothing_is_told() -> None:
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        await pair.watcher.ask(unwatch("app/t"))
        await raised(pair.target.ask(Fail(Boom())))
        assert await pair.exits() == []


async def test_unwatch_of_what_is_not_watched_does_nothing() -> None:
    async with Pair() as pair:
        await pair.watcher.ask(unwatch("app/t"))
        assert await pair.watcher.ask(Note("x")) == 1


async def test_unwatch_takes_back_a_terminated_that_is_queued() -> None:
    hold = Hold()
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        pair.watcher.tell(hold)
        pair.watcher.tell(unwatch("app/t"))
        await raised(pair.target.ask(Fail(Boom())))
        await idle()
        hold.until.set()
        assert await pair.exits() == []


async def test_unwatch_takes_back_the_answer_for_an_ended_actor() -> None:
    async def watch_and_unwatch(self: Puppet) -> None:
        target = self.context.runtime.ref("app/t")
        self.context.watch(target)
        self.context.unwatch(target)

    async with Pair(restart="transient") as pair:
        pair.target.tell(Fail(gr.Stop()))
        await idle()
        await pair.watcher.ask(Do(watch_and_unwatch))
        assert await pair.exits() == []


async def test_a_terminated_that_was_taken_back_does_not_answer_a_later_watch() -> None:
    hold = Hold()

    async def renew(self: Puppet) -> None:
        target = self.context.runtime.ref("app/t")
        self.context.unwatch(target)
        self.context.watch(target)

    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        pair.watcher.tell(hold)
        await raised(pair.target.ask(Fail(Boom())))  # its Terminated is queued behind the hold
        await idle()
        life = pair.watcher._cell.life
        await renew(life.body.target)  # type: ignore[union-attr]
        hold.until.set()
        assert await pair.exits() == []
        await raised(pair.target.ask(Fail(Boom())))
        assert await pair.exits() == [("error", 2)]


async def test_a_watcher_that_was_restarted_is_told_nothing() -> None:
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        await raised(pair.watcher.ask(Fail(Boom())))
        await raised(pair.target.ask(Fail(Boom())))
        assert await pair.exits() == []


async def test_a_watcher_that_was_restarted_is_told_nothing_that_was_queued_for_it_before() -> None:
    hold = Hold()
    async with Pair() as pair:
        await pair.watcher.ask(watch("app/t"))
        pair.watcher.tell(hold)
        pair.watcher.tell(Fail(Boom()))
        await raised(pair.target.ask(Fail(Boom())))
        hold.until.set()
        assert await pair.exits() == []


async def test_a_watch_from_on_start_holds() -> None:
    log: list[Any] = []

    class Watches(Puppet):
        async def on_start(self) -> None:
            self.context.watch(self.context.runtime.ref("app/t"))

    async with tree(gr.Child("t", Puppet), gr.Child("w", Watches, log)) as runtime:
        await raised(runtime.ref("app/t").ask(Fail(Boom())))
        await idle()
        assert len(log) == 1


async def test_a_terminated_that_no_handler_takes_is_a_dead_letter_and_crashes_nothing() -> None:
    class Deaf(gr.Actor):
        async def on_start(self) -> None:
            self.context.watch(self.context.runtime.ref("app/t"))

    async with tree(gr.Child("t", Puppet), gr.Child("w", Deaf)) as runtime:
        letters = runtime.dead_letters()
        await raised(runtime.ref("app/t").ask(Fail(Boom())))
        await idle()
        assert [(type(letter.message), letter.reason) for letter in letters.pending()] == [
            (gr.Terminated, gr.DeadLetterReason.UNHANDLED)
        ]
        assert runtime.ref("app/w").incarnation == 1


async def test_watching_something_that_is_no_ref_names_what_it_was() -> None:
    async def watch_path(self: Puppet) -> None:
        with pytest.raises(TypeError, match=r"^watch\('app/t'\): a gr.Ref is watched, as runtime.ref\(path\) gives it"):
            self.context.watch("app/t")  # type: ignore[arg-type]  # under test
        with pytest.raises(TypeError, match=r"^unwatch\('app/t'\): a gr.Ref is watched"):
            self.context.unwatch("app/t")  # type: ignore[arg-type]  # under test

    async with Pair() as pair:
        await pair.watcher.ask(Do(watch_path))


async def test_an_ended_incarnation_watches_nothing_more() -> None:
    contexts: list[gr.Context] = []

    async def leak(self: Puppet) -> None:
        contexts.append(self.context)

    async with Pair() as pair:
        await pair.watcher.ask(Do(leak))
        await pair.supervisor.terminate_child("w")
        with pytest.raises(gr.Misuse, match="'app/w' has ended: it watches nothing more"):
            contexts[0].watch(pair.target)
