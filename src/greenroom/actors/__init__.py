"""Actors: messages and handlers, addresses, and the loop that runs one incarnation."""

from greenroom.actors.actor import Actor
from greenroom.actors.cell import Administration, Cell, Life, State
from greenroom.actors.context import Context
from greenroom.actors.current import current_actor
from greenroom.actors.events import (
    ActorAbandoned,
    ActorEnded,
    ActorStarted,
    ActorStuck,
    Event,
    ProcessStarted,
    SlowHandler,
)
from greenroom.actors.exits import Verdict, classify
from greenroom.actors.handlers import handles
from greenroom.actors.isolation import Isolation, body_for, check_isolation, check_memory_limit
from greenroom.actors.life import ActorLife, Owner
from greenroom.actors.messages import Exit, ExitKind, Ignore, Message, Rejected, Stop, Terminated, described, text_of
from greenroom.actors.nursery import Nursery
from greenroom.actors.ref import Ref
from greenroom.actors.services import Directory, Services, Settings, Watch
from greenroom.actors.timers import AskDeadlines, Timer, Timers

__all__ = [
    "Actor",
    "ActorAbandoned",
    "ActorEnded",
    "ActorLife",
    "ActorStarted",
    "ActorStuck",
    "Administration",
    "AskDeadlines",
    "Cell",
    "Context",
    "Directory",
    "Event",
    "Exit",
    "ExitKind",
    "Ignore",
    "Isolation",
    "Life",
    "Message",
    "Nursery",
    "Owner",
    "ProcessStarted",
    "Ref",
    "Rejected",
    "Services",
    "Settings",
    "SlowHandler",
    "State",
    "Stop",
    "Terminated",
    "Timer",
    "Timers",
    "Verdict",
    "Watch",
    "body_for",
    "check_isolation",
    "check_memory_limit",
    "classify",
    "current_actor",
    "described",
    "handles",
    "text_of",
]
