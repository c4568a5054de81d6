"""Stores' URLs: what cannot be taken apart is refused, and no password is ever shown."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import BadStoreUrl, IncompatibleStore, NoSuchStore
from greenroom.persistence.inspection import check_store, find_store, migrate_store, place_of
from greenroom.persistence.urls import split_url, without_password


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:se:cr@et@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me@host/db?x=a:b@c", "postgresql://me@host/db?x=a:b@c"),
        ("postgresql://host:5432/db", "postgresql://host:5432/db"),
        ("postgresql://me:secret@[host/db", "postgresql://me:***@[host/db"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
    ],
)
def test_a_url_is_shown_without_its_password_and_otherwise_whole(url: str, shown: str) -> None:
    assert without_password(url) == shown


@given(st.text("abc123", min_size=1), st.text("abc:@!$%", min_size=1), st.text("xyz", min_size=1))
def test_what_is_left_of_a_url_without_its_password_has_none(user: str, password: str, host: str) -> None:
    shown = urlsplit(without_password(f"postgresql://{user}:{password}@{host}/db"))
    assert (shown.username, shown.password, shown.hostname, shown.path) == (user, "***", host, "/db")


def test_what_is_no_url_is_refused_without_its_password() -> None:
    with pytest.raises(BadStoreUrl, match=r"'postgresql://me:\*\*\*@\[host/db' will not do"):
        split_url("postgresql://me:secret@[host/db")


@pytest.mark.parametrize("call", [find_store, check_store, migrate_store])
async def test_without_asyncpg_postgresql_is_refused_with_the_way_out(
    call: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("greenroom.persistence.postgres.inspection")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    monkeypatch.delattr("greenroom.persistence.postgres.inspection", raising=False)
    with pytest.raises(BadStoreUrl, match=r"pip install 'greenroom\[postgres\]'"):
        await call("postgresql://me:secret@host/db")  # type: ignore[operator]


def test_the_place_of_a_database_in_memory_is_nowhere() -> None:
    with pytest.raises(BadStoreUrl, match="exists only inside its own store"):
        place_of("sqlite://:memory:")


async def test_what_is_somebody_elses_is_no_store_of_ours_and_not_missing_either(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("other")
    with pytest.raises(NoSuchStore):
        await find_store(f"sqlite:///{folder}/store.db")
    (folder / "store.db").write_text("no database " * 100)
    with pytest.raises(IncompatibleStore):
        await find_store(f"sqlite:///{folder}/store.db")
