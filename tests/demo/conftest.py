"""Fixtures of the tests of the desk."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.demo.desks import Counting


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the readers called `Counting` have read each file."""
    counter = Counter[str]()
    monkeypatch.setattr(Counting, "times", counter, raising=False)
    return counter
