"""The databases that tasks are tested on."""

from __future__ import annotations

from tests.durable.conftest import database

__all__ = ["database"]
