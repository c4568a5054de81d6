"""The databases of the conformance suite."""

from __future__ import annotations

from tests.persistence.conftest import database

__all__ = ["database"]
