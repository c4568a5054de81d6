"""`python -m greenroom.cli`: the same as the command `greenroom`."""

from __future__ import annotations

from greenroom.cli.main import app

app(prog_name="greenroom")
