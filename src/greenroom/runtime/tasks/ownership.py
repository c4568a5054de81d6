"""`Ownership`: a task that this runtime has claimed, and what may be written while that lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, field

from greenroom.logs import logger_named
from greenroom.persistence import OwnerWrite, Refused, Transition

if TYPE_CHECKING:
    from greenroom.runtime.durable.storage import Storage

logger = logger_named("greenroom.tasks")

T = TypeVar("T")


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
        """Commit what only the owner may. Raises `NotOurs`; `StoreUnavailable` when the store is gone for good."""
        self._check()
        answer = await self.storage.commit_surely(transition, self._check)
        if isinstance(answer, Refused):
            self.held = False
            logger.warning("%s of %s was refused: %s", type(transition).__name__, self.address, answer.detail)
            raise NotOurs(answer.detail)
        return answer

    def let_go(self, transition: Transition[Any]) -> None:
        """Own it no more. What says so is committed beside the tree, though nobody waits for it."""
        if self.held:
            self.held = False
            self.storage.leftovers.add(self.address, transition)

    def _check(self) -> None:
        if not self.may_act():
            self.held = False
            raise NotOurs("its lease was lost")
