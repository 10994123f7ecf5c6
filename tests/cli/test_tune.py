from __future__ import annotations

import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from typer.testing import CliRunner

from pcnn.cli.commands import app
from pcnn.cli.composed import composed
from pcnn.cli.tune import _write
from pcnn.dataflows import Blocked, GatherScatter, Reference
from pcnn.dataflows.tuned import forget
from pcnn.dataflows.tuning_file import read
from pcnn.ops import resolve
from pcnn.runtime.tuning import TunedLayer
from tests.experiment.command import REPOSITORY
from tests.experiment.tiny_kitti import write_tiny_kitti

TINY = ("model=minkunet", "model.width=0.125", "dataset=kitti", "dataset.voxel_size=0.4")

runner = CliRunner()


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Overrides for a tiny data set; files that the command writes itself stay in tmp_path."""
    root = write_tiny_kitti(tmp_path / "kitti", {0: 2, 8: 2})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return (
        *TINY,
        f"dataset.root={root}",
        "dataset.train_sequences=[0]",
        "dataset.num_workers=0",
        "trainer=cpu",
    )


def run(*words: str, code: int = 0) -> str:
    conf = ("--conf", str(REPOSITORY / "conf"), "--device", "cpu")
    done = runner.invoke(app, ["tune", *words, *conf])
    assert done.exit_code == code, f"{done.output}\n{done.exception!r}"
    return done.output


def test_a_network_is_tuned_and_explained(
    data: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offered = (Reference(), Blocked())
    monkeypatch.setattr("pcnn.runtime.tuning.default_candidates", lambda *_: offered)
    cache = tmp_path / "own.json"
    text = run(*data, "--samples", "1", "--cache", str(cache))
    assert re.search(r"stem\.0\.conv: (Reference|Blocked) \(forward \d", text)
    assert "convolutions on cpu" in text
    assert "42 layers tuned, 0 of them by decisions on disk" in text.replace("\n", " ")
    assert len(read(cache))
    text = run(*data, "--samples", "1", "--cache", str(cache))
    assert "42 layers tuned, 42 of them by decisions on disk" in text.replace("\n", " ")
    forget()


def test_a_cpu_has_nothing_to_choose_from(data: tuple[str, ...]) -> None:
    assert "nothing to choose" in run(*data, "--samples", "1", "--backward")


def test_settings_of_a_papers_layers_are_written_for_its_engine(tmp_path: Path) -> None:
    cfg, out, minuet = composed(["engine=minuet"], REPOSITORY / "conf"), tmp_path / "own.yaml", []
    for name, changed in (("stem.0.conv", {"padding": 0.5, "streams": 1}), ("stem.1.conv", {})):
        engine = resolve("minuet", **changed)
        assert isinstance(engine.dataflow, GatherScatter)
        minuet.append(TunedLayer(name, engine.dataflow, {}, settings=engine.settings))
    _write(cfg, minuet, out)
    written = OmegaConf.to_container(OmegaConf.load(out))
    assert written == {"stem.0.conv": {"padding": 0.5, "streams": 1}}


def test_mistakes_are_named() -> None:
    done = runner.invoke(app, ["tune", "--conf", "/nowhere"])
    assert done.exit_code == 2
    assert "no train.yaml" in done.output
    run("model=nonsense", code=2)
    run("model.widht=3", code=2)
    run("engine=spira", code=2)  # a CPU
    assert "engine=auto has none" in run("--out", "x.yaml", code=2)
    run("engine=spira", "geometry=point", code=2)
