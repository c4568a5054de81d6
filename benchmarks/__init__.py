"""Benchmarks: how fast Greenroom is, beside the least that could do the same and beside what others do.

They are measurements, not tests: a missed target is shown, and fails nothing. Each is a module with an entry of its
own, `python -m benchmarks.actors [--quick] [--json FILE] [--only METRIC]`, run from the root of the project; so are
`benchmarks.store` and `benchmarks.floor`. `benchmarks.kill_loop` measures nothing: it kills a service again and again, and
fails when anything was lost or handled twice.
"""
