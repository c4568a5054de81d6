"""Durable tasks in a runtime: agents perform them, by need, in any process that serves their pool.

The walk of a task: `submitting` accepts it → its pool (`pool`) claims it → an `Activation` runs its agent's control code over its
journal, turn by turn (`greenroom.runtime.replay`) → `Flight`s invoke its operations → each turn is one commit → the end, which whoever
holds a `TaskHandle` gets. `desk` knows which of it is going on in this runtime, and carries wake-ups to whom they concern.
"""
