"""All hot kinds: messages and deliveries, tasks and their turns."""

from __future__ import annotations

from typing import Any, Final

from greenroom.persistence.journal import CommitTurn
from greenroom.persistence.postgres.hot import HOT as MESSAGES
from greenroom.persistence.postgres.hot import Hot
from greenroom.persistence.postgres.tasks import Claim, Submit, Wake
from greenroom.persistence.postgres.turns import Turns
from greenroom.persistence.tasks import ClaimTask, SubmitTask, WakeTask
from greenroom.persistence.transitions import Transition

CLAIM: Final = Claim()

HOT: Final[dict[type[Transition[Any]], Hot]] = {
    **MESSAGES,
    ClaimTask: CLAIM,
    CommitTurn: Turns(),
    SubmitTask: Submit(),
    WakeTask: Wake(),
}
