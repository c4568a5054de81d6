"""Loggers whose handlers may fail. They are somebody else's code, called from the middle of a supervisor: a service must not end there."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import MutableMapping
from typing import Any


class Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger that never raises: a handler, filter or formatter that does is reported on standard error, as `logging` does with its own."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """Leave everything as it is, `extra` too."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """As `logging.Logger.log`. The record names the caller of this, or of `info` and the like."""
        kwargs.setdefault("stacklevel", 2)
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever a handler raises
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


def logger_named(name: str) -> Logger:
    """The logger of this name, made safe."""
    return Logger(logging.getLogger(name))
