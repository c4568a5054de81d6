"""Process children: each actor in an interpreter and a process group of its own, behind a wire of frames.

On the event loop's side: `body` (what the life drives), `worker_process` (the operating system's part), `parent_wire`, `errands` (what
the worker wants of the tree), `oom`. In the worker: `boot`, `worker`, `worker_link`, `worker_refs`, `worker_context`. Both sides:
`wire`, `parcels`, `references`.
"""
