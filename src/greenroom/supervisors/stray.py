"""The mailbox of a supervisor: it has none. Messages to it are strays: logged, told to the asker, never a crash."""

from __future__ import annotations

from greenroom.errors import UnhandledMessage
from greenroom.mailbox import DeadLetterReason, DeadLetters, Envelope, EventLoop, Mailbox, MemoryMailbox, message_type


class StrayMailbox(MemoryMailbox):
    """Turns every message into a dead letter, every ask into `UnhandledMessage`.

    OTP crashes a supervisor on an unknown call; here it answers and goes on.
    """

    __slots__ = ()

    def __init__(self, path: str, loop: EventLoop, dead_letters: DeadLetters) -> None:
        super().__init__(path, Mailbox(), loop, dead_letters)
        self.limit = -1

    def _update_limit(self) -> None:
        """Never any room: everything goes through `put_nowait`."""

    def put_nowait(self, envelope: Envelope) -> None:
        self._loop.check_thread()
        message, sender, reply = envelope
        if self._closed is not None:
            self._refuse(envelope)
        elif reply is None:
            self._dead_letters.publish(message, self.path, sender.path if sender else None, DeadLetterReason.UNHANDLED)
        elif not reply.done():
            reply.set_exception(UnhandledMessage(self.path, message_type(message)))

    async def put(self, envelope: Envelope) -> None:
        await self._loop.checkpoint()  # nobody may call this in a loop and let nobody else run
        self.put_nowait(envelope)
