"""examples/desk: the tree that it puts together is the one that `greenroom demo` runs, and it works."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import greenroom as gr
from examples.desk import service
from greenroom.demo.review_store import store_url
from greenroom.demo.tree import desk
from tests.demo.desks import fill


def shape(spec: gr.Child | gr.SupervisorSpec) -> dict[str, object]:
    """What a specification says, but for arguments and callbacks."""
    said = {
        name: shape(value) if isinstance(value, gr.Child) else value
        for name, value in vars(spec).items()
        if name not in ("args", "_groups") and not (callable(value) and not isinstance(value, type))
    }
    if isinstance(spec, gr.Supervisor):
        said["groups"] = [[shape(child) for child in group] for group in spec.groups()]
    return said


def test_the_example_puts_the_same_tree_together_as_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_FOLDER", str(tmp_path))
    assert shape(service.tree()) == shape(desk(tmp_path))


@pytest.mark.real_time
async def test_the_example_reviews_the_folder_that_its_environment_names(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = store_url(tmp_path_factory.mktemp("store") / "review.db")
    fill(tmp_path)
    monkeypatch.setenv("DESK_FOLDER", str(tmp_path))
    async with gr.Runtime(service.tree(), store=store) as runtime:
        await runtime.wait()
    assert "40 files seen" in capsys.readouterr().out
    report = json.loads((tmp_path / ".greenroom" / "report.json").read_bytes())
    assert report["findings"]["totals"]["seen"] == 40


@pytest.mark.real_time
async def test_the_example_reviews_the_current_folder_without_an_environment(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_url(tmp_path_factory.mktemp("store") / "review.db")
    monkeypatch.delenv("DESK_FOLDER", raising=False)
    monkeypatch.chdir(fill(tmp_path))
    async with gr.Runtime(service.tree(), store=store) as runtime:
        await runtime.wait()
    assert os.path.exists(tmp_path / ".greenroom" / "report.md")
