"""How queries about tasks are answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from greenroom.persistence.addresses import AddressRecord
from greenroom.persistence.applying.task_rows import FIXED, IN_HAND, IN_HAND_COLUMNS
from greenroom.persistence.applying.unit import Record
from greenroom.persistence.callbacks import AnsweredCallbacks, CallbackRecord, OpenCallbacks
from greenroom.persistence.clock import instant, maybe_instant
from greenroom.persistence.journal import JournalEntry, ReadHistory, ReadJournal, WrittenEntry
from greenroom.persistence.lists import text_list
from greenroom.persistence.operations import InvocationRecord, OperationRecord, ReadInvocations, ReadOperations
from greenroom.persistence.reading.records import ADDRESS, CALLBACK, EXECUTION, address_record, callback_record
from greenroom.persistence.reading.task_records import (
    ATTEMPT,
    ENTRY,
    INVOCATION,
    OPERATION,
    TASK_ADDRESS,
    attempt_record,
    entry_record,
    invocation_record,
    operation_record,
    task_record,
    written_entry,
)
from greenroom.persistence.task_pools import ListTaskPools, ReadTaskPool, TaskPoolRecord
from greenroom.persistence.tasks import (
    AttemptRecord,
    ChildrenOf,
    DueTask,
    DueTasks,
    IdleTask,
    ListTasks,
    NextTaskDue,
    Orphan,
    OwnedTasks,
    ReadAttempts,
    ReadTask,
    RunnableTasks,
    TaskRecord,
    Watched,
    WatchTasks,
    task_address,
)
from greenroom.persistence.transitions import Query

if TYPE_CHECKING:
    from greenroom.persistence.reading.queries import Reader

_NOW: Final = "(SELECT greenroom_now())"
_RECORD: Final = f"SELECT {TASK_ADDRESS}, {_NOW}, {IN_HAND}, {FIXED}"
_NOW_AT: Final = TASK_ADDRESS.count(",") + 1
_FIXED_AT: Final = _NOW_AT + 1 + IN_HAND_COLUMNS

# One task.
READ_TASK: Final = f"{_RECORD} FROM tasks t JOIN addresses a ON a.address = t.address WHERE t.address = $1"

# What `condition_of` says, to choose by it.
CONDITION: Final = (
    "CASE WHEN a.closed_at IS NOT NULL THEN 'terminal' WHEN a.parked IS NOT NULL THEN 'waiting' "
    "WHEN a.owner IS NOT NULL THEN 'running' "
    f"WHEN t.runnable OR a.due_at <= {_NOW} THEN 'runnable' ELSE 'waiting' END"
)
_CHOSEN: Final = f"AND (CAST($3 AS text) IS NULL OR {CONDITION} = $3) AND (NOT $4 OR a.parked IS NOT NULL) ORDER BY t.address LIMIT $2"
# A page of all tasks.
LIST_TASKS: Final = f"{_RECORD} FROM tasks t JOIN addresses a ON a.address = t.address WHERE t.address > $1 {_CHOSEN}"
# A page of a pool's tasks.
LIST_TASKS_OF: Final = (
    f"{_RECORD} FROM tasks t JOIN addresses a ON a.address = t.address WHERE t.pool = $5 AND t.address > $1 {_CHOSEN}"
)
# Attempts of a task: those that were followed by another, and the last.
READ_ATTEMPTS: Final = (
    f"SELECT {ATTEMPT} FROM attempts WHERE address = $1 UNION ALL "
    "SELECT attempt, attempt_at, ended_at, outcome, attempt_reason, result, result_size, error, error_size "
    "FROM tasks WHERE address = $1 ORDER BY 1"
)
# The front of a pool's queue.
RUNNABLE_TASKS: Final = (
    "SELECT address FROM tasks WHERE runnable AND pool = $1 ORDER BY priority DESC, turn, address LIMIT $2"
)
# The same of those whose attempt has begun.
RUNNABLE_BEGUN: Final = RUNNABLE_TASKS.replace("runnable AND", "runnable AND version IS NOT NULL AND")
# How many places a task's group has taken.
PLACED: Final = "(SELECT count(*) FROM tasks x WHERE x.pool = t.pool AND x.group_key = t.group_key AND x.placed)"
# The front of a queue without those whose group has all its places taken.
PLACEABLE_TASKS: Final = (
    f"SELECT t.address, t.group_key, {PLACED} FROM tasks t WHERE t.runnable AND t.pool = $1 AND {PLACED} < $3 "
    "ORDER BY t.priority DESC, t.turn, t.address LIMIT $2"
)
# The same of those whose attempt has begun.
PLACEABLE_BEGUN: Final = PLACEABLE_TASKS.replace("t.runnable AND", "t.runnable AND t.version IS NOT NULL AND")
# Tasks that somebody should wake.
DUE_TASKS: Final = (
    "SELECT d.address, t.pool FROM (SELECT address, due_at FROM addresses WHERE kind = 'task' "
    f"AND due_at <= {_NOW} ORDER BY due_at, address LIMIT $1) d JOIN tasks t ON t.address = d.address "
    "ORDER BY d.due_at, d.address"
)
# When somebody should wake the next.
NEXT_TASK_DUE: Final = (
    "SELECT due_at FROM addresses WHERE kind = 'task' AND due_at IS NOT NULL ORDER BY due_at, address LIMIT 1"
)
# A page of tasks that an execution owns.
OWNED_TASKS: Final = (
    "SELECT address FROM addresses WHERE owner = $1 AND address > $2 AND kind = 'task' ORDER BY address LIMIT $3"
)
# A page of tasks that have not ended, and what may be wrong with each.
WATCH_TASKS: Final = (
    "SELECT t.address, t.pool, t.waits, "
    "a.owner IS NULL AND a.parked IS NULL AND a.due_at IS NULL AND a.ready = 0 AND NOT t.runnable, "
    "t.parent IS NOT NULL AND t.parent_policy = 'stop' AND (p.address IS NULL OR p.closed_at IS NOT NULL) "
    "FROM (SELECT address, pool, waits, runnable, parent, parent_policy FROM tasks WHERE outcome IS NULL AND address > $1 "
    "ORDER BY address LIMIT $2) t JOIN addresses a ON a.address = t.address LEFT JOIN addresses p ON p.address = t.parent "
    "ORDER BY t.address"
)
# A page of a task's children that have not ended.
CHILDREN_OF: Final = (
    f"SELECT {ADDRESS} FROM addresses WHERE address IN (SELECT address FROM tasks WHERE parent = $1 AND outcome IS NULL "
    "AND address > $2 AND (NOT $4 OR parent_policy = 'stop') ORDER BY address LIMIT $3) ORDER BY address"
)
# A page of a journal.
READ_JOURNAL: Final = f"SELECT {ENTRY} FROM journal WHERE address = $1 AND attempt = $2 AND segment = $3 AND seq > $4 ORDER BY seq LIMIT $5"
# What operators have said of the operation that a row is the outcome of; only one with an intent has a version.
DECISIONS: Final = (
    "CASE WHEN version IS NULL THEN NULL ELSE (SELECT o.decisions FROM operations o WHERE o.address = journal.address "
    "AND o.attempt = journal.attempt AND o.segment = journal.segment AND o.call = journal.call) END"
)
# A page of the journals of all attempts.
READ_HISTORY: Final = (
    f"SELECT attempt, segment, execution_id, generation, {DECISIONS}, {ENTRY} FROM journal "
    "WHERE address = $1 AND (attempt, segment, seq) >= ($2, $3, $4) ORDER BY attempt, segment, seq LIMIT $5"
)
# Operations of an attempt.
READ_OPERATIONS: Final = (
    f"SELECT {OPERATION} FROM operations WHERE address = $1 AND attempt = $2 AND (NOT $3 OR status <> 'settled') "
    "ORDER BY segment, intended_at, call"
)
# Tries of an attempt.
READ_INVOCATIONS: Final = (
    f"SELECT {INVOCATION} FROM invocations WHERE address = $1 AND attempt = $2 "
    "ORDER BY started_at, segment, call, invocation"
)
# All pools of tasks.
LIST_TASK_POOLS: Final = "SELECT pool, queue_limit, runnable, per_group, rate_count, rate_period, registered_at FROM task_pools ORDER BY pool"
# One pool of tasks.
READ_TASK_POOL: Final = "SELECT pool, queue_limit, runnable, per_group, rate_count, rate_period, registered_at FROM task_pools WHERE pool = $1"
# Who serves pools.
LIST_SERVERS: Final = (
    f"SELECT s.pool, {', '.join(f'e.{name}' for name in EXECUTION.split(', ')[:-1])}, {_NOW} "
    "FROM task_servers s JOIN executions e ON e.execution_id = s.execution_id ORDER BY s.pool, s.execution_id"
)
# Open callbacks of an address.
OPEN_CALLBACKS: Final = (
    "SELECT callback_id FROM callbacks WHERE address = $1 AND status = 'open' AND callback_id > $2 "
    "ORDER BY callback_id LIMIT $3"
)
# Answers that are not in their mailboxes yet.
ANSWERED_CALLBACKS: Final = (
    f"SELECT {CALLBACK} FROM callbacks WHERE undelivered ORDER BY settled_at, callback_id LIMIT $1"
)


def _task(row: Record) -> TaskRecord:
    return task_record(row[_FIXED_AT:], row[_NOW_AT + 1 : _FIXED_AT], row[:_NOW_AT], row[_NOW_AT])


async def read_task(reader: Reader, query: ReadTask) -> TaskRecord | None:
    row = await reader.tx.one(READ_TASK, query.address)
    return None if row is None else _task(row)


async def list_tasks(reader: Reader, query: ListTasks) -> tuple[TaskRecord, ...]:
    condition = None if query.condition is None else query.condition.value
    chosen = (task_address(query.after), query.limit, condition, query.parked)
    if query.pool is None:
        return tuple(map(_task, await reader.tx.all(LIST_TASKS, *chosen)))
    return tuple(map(_task, await reader.tx.all(LIST_TASKS_OF, *chosen, query.pool)))


async def read_attempts(reader: Reader, query: ReadAttempts) -> tuple[AttemptRecord, ...]:
    return tuple(map(attempt_record, await reader.tx.all(READ_ATTEMPTS, query.address)))


async def runnable_tasks(reader: Reader, query: RunnableTasks) -> tuple[str, ...]:
    if query.per_group is not None:
        return await _placeable(reader, query, query.per_group)
    sql = RUNNABLE_BEGUN if query.begun else RUNNABLE_TASKS
    return tuple(address for (address,) in await reader.tx.all(sql, query.pool, query.limit))


async def _placeable(reader: Reader, query: RunnableTasks, per_group: int) -> tuple[str, ...]:
    """Of each group as many as find places, however many of it stand at the front."""
    sql = PLACEABLE_BEGUN if query.begun else PLACEABLE_TASKS
    size = query.limit
    while True:
        rows = await reader.tx.all(sql, query.pool, size, per_group)
        found: list[str] = []
        taken: Counter[str] = Counter()
        for address, group, placed in rows:
            taken[group] += 1
            if placed + taken[group] <= per_group:
                found.append(address)
        if len(found) >= query.limit or len(rows) < size:
            return tuple(found[: query.limit])
        size *= 4


async def due_tasks(reader: Reader, query: DueTasks) -> tuple[DueTask, ...]:
    return tuple(DueTask(*row) for row in await reader.tx.all(DUE_TASKS, query.limit))


async def next_task_due(reader: Reader, _query: NextTaskDue) -> datetime | None:
    row = await reader.tx.one(NEXT_TASK_DUE)
    return None if row is None else maybe_instant(row[0])


async def owned_tasks(reader: Reader, query: OwnedTasks) -> tuple[str, ...]:
    rows = await reader.tx.all(OWNED_TASKS, query.execution_id, query.after, query.limit)
    return tuple(address for (address,) in rows)


async def watch_tasks(reader: Reader, query: WatchTasks) -> Watched:
    rows = await reader.tx.all(WATCH_TASKS, query.after, query.limit)
    return Watched(
        idle=tuple(IdleTask(address, tuple(text_list(waits))) for address, _, waits, idle, _ in rows if idle),
        orphans=tuple(Orphan(address, pool) for address, pool, _, _, orphaned in rows if orphaned),
        after=rows[-1][0] if len(rows) == query.limit else None,
    )


async def children_of(reader: Reader, query: ChildrenOf) -> tuple[AddressRecord, ...]:
    rows = await reader.tx.all(CHILDREN_OF, query.address, query.after, query.limit, query.stopping)
    return tuple(address_record(row, with_state=False) for row in rows)


async def read_journal(reader: Reader, query: ReadJournal) -> tuple[JournalEntry, ...]:
    place = (query.address, query.attempt, query.segment, query.after, query.limit)
    return tuple(map(entry_record, await reader.tx.all(READ_JOURNAL, *place)))


async def read_history(reader: Reader, query: ReadHistory) -> tuple[WrittenEntry, ...]:
    return tuple(map(written_entry, await reader.tx.all(READ_HISTORY, query.address, *query.since, query.limit)))


async def read_operations(reader: Reader, query: ReadOperations) -> tuple[OperationRecord, ...]:
    rows = await reader.tx.all(READ_OPERATIONS, query.address, query.attempt, query.unsettled)
    return tuple(map(operation_record, rows))


async def read_invocations(reader: Reader, query: ReadInvocations) -> tuple[InvocationRecord, ...]:
    return tuple(map(invocation_record, await reader.tx.all(READ_INVOCATIONS, query.address, query.attempt)))


async def read_task_pool(reader: Reader, query: ReadTaskPool) -> TaskPoolRecord | None:
    row = await reader.tx.one(READ_TASK_POOL, query.pool)
    return None if row is None else (await _served(reader, [row]))[0]


async def list_task_pools(reader: Reader, _query: ListTaskPools) -> tuple[TaskPoolRecord, ...]:
    return await _served(reader, await reader.tx.all(LIST_TASK_POOLS))


async def _served(reader: Reader, pools: Iterable[Record]) -> tuple[TaskPoolRecord, ...]:
    """Pools, with those that serve them and are alive."""
    alive = {
        pool: tuple(execution[0] for _, *execution in servers if reader.seconds_left(execution) > 0)
        for pool, servers in groupby(await reader.tx.all(LIST_SERVERS), key=lambda row: str(row[0]))
    }
    return tuple(
        TaskPoolRecord(
            pool=pool,
            queue_limit=queue_limit,
            runnable=runnable,
            per_group=per_group,
            rate=None if count is None else (count, period / 1e6),
            registered_at=instant(registered_at),
            served_by=alive.get(pool, ()),
        )
        for pool, queue_limit, runnable, per_group, count, period, registered_at in pools
    )


async def open_callbacks(reader: Reader, query: OpenCallbacks) -> tuple[str, ...]:
    rows = await reader.tx.all(OPEN_CALLBACKS, query.address, query.after, query.limit)
    return tuple(callback_id for (callback_id,) in rows)


async def answered_callbacks(reader: Reader, query: AnsweredCallbacks) -> tuple[CallbackRecord, ...]:
    return tuple(map(callback_record, await reader.tx.all(ANSWERED_CALLBACKS, query.limit)))


READERS: Final[dict[type[Query[Any]], Callable[[Reader, Any], Awaitable[Any]]]] = {
    AnsweredCallbacks: answered_callbacks,
    ChildrenOf: children_of,
    DueTasks: due_tasks,
    ListTaskPools: list_task_pools,
    ListTasks: list_tasks,
    NextTaskDue: next_task_due,
    OwnedTasks: owned_tasks,
    OpenCallbacks: open_callbacks,
    ReadAttempts: read_attempts,
    ReadHistory: read_history,
    ReadInvocations: read_invocations,
    ReadJournal: read_journal,
    ReadOperations: read_operations,
    ReadTask: read_task,
    ReadTaskPool: read_task_pool,
    RunnableTasks: runnable_tasks,
    WatchTasks: watch_tasks,
}
