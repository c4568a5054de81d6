"""The plpgsql functions of the hot kinds, and how they get into a schema.

A function's name carries the digest of its text: workers of two releases share a schema, and each calls its own (R33). In a
text, braces stand around the name of a function: the text's own, and those that it calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from importlib import resources
from typing import Final

_CALLED: Final = re.compile(r"\{([a-z_]+)\}")


def _load() -> dict[str, tuple[str, str]]:
    folder = resources.files(__package__) / "functions"
    texts = {
        file.name.removesuffix(".sql"): file.read_text(encoding="utf-8")
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

STEER: Final = """
CREATE OR REPLACE FUNCTION greenroom_now() RETURNS bigint LANGUAGE sql VOLATILE AS
$$ SELECT coalesce(
    nullif(current_setting('greenroom.now', true), '')::bigint,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
) $$
"""
"""The schema's clock, as the testing kit needs it: steered session by session. Product code never installs it (R13)."""
