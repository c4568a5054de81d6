"""What an `async with Runtime` block is left by, of all that may have happened in it at once: a rule."""

from __future__ import annotations

from contextlib import suppress

from greenroom.actors import described


def what_leaves(
    left: BaseException | None,
    met: BaseException | None,
    *,
    fatal: BaseException | None,
    failure: BaseException | None,
    cancelled: type[BaseException],
) -> BaseException | None:
    """The exception that the block raises; None when it ends normally. What it hides is told in a note.

    Args:
        left: what the body was left by, our own cancellation of it excepted.
        met: a cancellation of the host, or a Ctrl-C, that came while the block waited.
        fatal: KeyboardInterrupt or SystemExit of an actor.
        failure: what the tree failed with.
        cancelled: what cancellation raises on this loop.
    """
    own = left if not isinstance(left, cancelled) else None
    order = met if fatal is None and isinstance(met, KeyboardInterrupt) else fatal
    if order is not None and not isinstance(own, (KeyboardInterrupt, SystemExit)):
        if own is not None:
            order.add_note(f"greenroom: besides, the block was left by {described(own)}")
        return order
    if own is not None:
        if failure is not None and failure is not own:
            with suppress(Exception):  # somebody else's class, which may let nobody set its attributes
                own.add_note(f"greenroom: besides, {failure}")
        return own
    # A failure of the tree is not lost in a cancellation of the host, unless it comes from one of all tasks of the loop.
    cancellation = left or met
    if failure is not None and cancellation is not None and isinstance(failure.__cause__, cancelled):
        return cancellation
    return failure or cancellation
