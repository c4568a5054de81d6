"""Actors: messages and handlers, addresses, and the loop that runs one incarnation."""

from greenroom.actors.actor import Actor
from greenroom.actors.cell import Administration, Cell, Life, State
from greenroom.actors.context import Context
from greenroom.actors.current import current_actor
from greenroom.actors.durable import DurableActor, is_durable, state_type
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
from greenroom.actors.message_loop import NOT_BEGUN, MessageLoop
from greenroom.actors.messages import (
    Exit,
    ExitKind,
    Ignore,
    Message,
    Rejected,
    Stop,
    Terminated,
    check_storable,
    described,
    storable,
    text_of,
)
from greenroom.actors.nursery import Nursery
from greenroom.actors.ref import Ref
from greenroom.actors.services import Directory, Services, Settings, Storage, Watch
from greenroom.actors.timers import AskDeadlines, Timer, Timers
from greenroom.actors.unit import Held, HeldTimer, Published, Unit, in_control_code, open_unit

__all__ = [
    "NOT_BEGUN",
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
    "DurableActor",
    "Event",
    "Exit",
    "ExitKind",
    "Held",
    "HeldTimer",
    "Ignore",
    "Isolation",
    "Life",
    "Message",
    "MessageLoop",
    "Nursery",
    "Owner",
    "ProcessStarted",
    "Published",
    "Ref",
    "Rejected",
    "Services",
    "Settings",
    "SlowHandler",
    "State",
    "Stop",
    "Storage",
    "Terminated",
    "Timer",
    "Timers",
    "Unit",
    "Verdict",
    "Watch",
    "body_for",
    "check_isolation",
    "check_memory_limit",
    "check_storable",
    "classify",
    "current_actor",
    "described",
    "handles",
    "in_control_code",
    "is_durable",
    "open_unit",
    "state_type",
    "storable",
    "text_of",
]
