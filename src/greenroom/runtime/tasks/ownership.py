"""`Ownership`: a task that this runtime has claimed, and what may be written while that lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from attrs import define, field

from greenroom.errors import Defect, StoreRefused
from greenroom.logs import logger_named
from greenroom.persistence import OwnerWrite, RefusalReason, Refused, Transition

if TYPE_CHECKING:
    from greenroom.persistence.pending import Pending
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.tasks")

T = TypeVar("T")

LOST: Final = frozenset(
    {
        RefusalReason.STALE_GENERATION,
        RefusalReason.NOT_OWNER,
        RefusalReason.LEASE_EXPIRED,
        RefusalReason.UNKNOWN_EXECUTION,
    }
)
"""Refusals that say that the task is owned here no more."""


class NotOurs(Exception):
    """The task is somebody else's by now, or nobody's: nothing more is written. For the activation, never for users."""


@define(eq=False)
class Ownership:
    """See the module. For the event loop's thread."""

    storage: Storage
    address: str
    execution_id: str
    generation: int
    held: bool = field(default=True, init=False)

    @property
    def fields(self) -> dict[str, Any]:
        """What every write of the owner carries."""
        return {"address": self.address, "execution_id": self.execution_id, "generation": self.generation}

    def may_act(self) -> bool:
        """Whether an effect may be made now: by this machine's clock the lease holds (R10)."""
        execution = self.storage.living()
        return self.held and execution is not None and execution.id == self.execution_id

    async def commit(self, transition: OwnerWrite[T]) -> T:
        """Commit what only the owner may.

        Raises:
            NotOurs: it is the owner no more.
            StoreRefused: a child task was to go to a pool that nobody knows.
            StoreUnavailable: the store is gone for good.
        """
        self._check()
        return self._accepted(transition, await self.storage.commit_surely(transition, self._check))

    async def finish(self, begun: Pending) -> Any:
        """As `commit`, of what was submitted before."""
        transition = cast("Transition[Any]", begun.request)
        return self._accepted(transition, await self.storage.commit_surely(transition, self._check, begun=begun))

    def _accepted(self, transition: Transition[T], answer: T | Refused) -> T:
        if not isinstance(answer, Refused):
            return answer
        logger.warning("%s of %s was refused: %s", type(transition).__name__, self.address, answer.detail)
        if answer.reason in LOST:
            self.held = False
            raise NotOurs(answer.detail)
        if answer.reason is RefusalReason.UNKNOWN_POOL:
            raise StoreRefused(answer.reason.value, answer.detail)
        raise Defect(f"{type(transition).__name__} of {self.address} was refused to its owner: {answer.detail}")

    def let_go(self, transition: Transition[Any]) -> None:
        """Own it no more. What says so is committed beside the tree, though nobody waits for it."""
        if self.held:
            self.held = False
            self.storage.leftovers.add(self.address, transition)

    def _check(self) -> None:
        if not self.may_act():
            self.held = False
            raise NotOurs("its lease was lost")
