"""The plpgsql functions of the hot kinds, and how they get into a schema.

A function's name carries the digest of its text: workers of two releases share a schema, and each calls its own (R33). In a
text, braces stand around the name of a function: the text's own, and those that it calls. `{task_columns}` are all of a task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from importlib import resources
from typing import Final

from greenroom.persistence.applying.task_rows import FIXED, IN_HAND
from greenroom.persistence.reading.task_records import TASK_ADDRESS

_CALLED: Final = re.compile(r"\{([a-z_]+)\}")

TASK_COLUMNS: Final = f"{TASK_ADDRESS}, {IN_HAND}, {FIXED}"
"""All there is to know of `tasks t` with its `addresses a`."""


def _load() -> dict[str, tuple[str, str]]:
    folder = resources.files(__package__) / "functions"
    texts = {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8").replace("{task_columns}", TASK_COLUMNS)
        for file in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if file.name.endswith(".sql")
    }
    loaded: dict[str, tuple[str, str]] = {}

    def load(stem: str) -> str:
        """Its name, which changes with those of the functions that it calls."""
        if stem not in loaded:
            text = _CALLED.sub(lambda match: match[0] if match[1] == stem else load(match[1]), texts[stem])
            name = f"greenroom_{stem}_{sha256(text.encode()).hexdigest()[:8]}"
            loaded[stem] = name, text.replace("{" + stem + "}", name)
        return loaded[stem][0]

    for stem in texts:
        load(stem)
    return loaded


_FUNCTIONS: Final = _load()

NAMES: Final[Mapping[str, str]] = {stem: name for stem, (name, _) in _FUNCTIONS.items()}
"""What each function is called in the database."""

TEXTS: Final[Mapping[str, str]] = dict(_FUNCTIONS.values())
"""The statement that makes each, by its name there."""


def value_of(stem: str, arguments: int) -> str:
    """The call of a function about a single item, with so many arguments, for its one value, which may be a record."""
    return f"SELECT {NAMES[stem]}({', '.join(f'${n}' for n in range(1, arguments + 1))})"


STEER: Final = """
CREATE OR REPLACE FUNCTION greenroom_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(
    nullif(current_setting('greenroom.now', true), '')::bigint,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
) $$
"""
"""The schema's clock, as the testing kit needs it: steered session by session. Product code never installs it (R13)."""
