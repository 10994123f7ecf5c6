from __future__ import annotations

from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from benchmarks.six_fold import joined
from pcnn.checkpoints.checkpoint_file import write_whole
from pcnn.errors import ConfigError, FileError
from pcnn.experiment import report, run_folder
from pcnn.experiment.resume import Run, continuation, is_finished
from pcnn.experiment.run_folder import CONFUSION, read_counts, write_counts
from pcnn.metrics import miou_official


def config(steps: int = 5) -> DictConfig:
    return OmegaConf.create(
        {
            "dataset": {"name": "kitti"},
            "model": {"name": "minkunet"},
            "task": {"name": "segmentation"},
            "geometry": {"name": "voxel"},
            "engine": {"name": "auto"},
            "trainer": {"max_steps": steps, "max_epochs": None, "max_time": None},
            "seed": 3,
            "data": {"source": "simulated", "in_channels": 4},
        }
    )


def test_finished_until_made_longer(tmp_path: Path) -> None:
    run_folder.record(tmp_path, config(), resumed=False)
    assert not is_finished(tmp_path)
    report.write_metrics(tmp_path, config(), {}, 5, None)
    assert is_finished(tmp_path)
    longer = OmegaConf.create({"resume": str(tmp_path), "trainer": {"max_steps": 9}})
    same = OmegaConf.create({"resume": str(tmp_path), "trainer": {"max_steps": 5}})
    assert continuation(same, [f"resume={tmp_path}"]).finished
    with pytest.raises(ConfigError):  # nobody gave another number
        continuation(longer, [f"resume={tmp_path}"])
    more = continuation(longer, [f"resume={tmp_path}", "trainer.max_steps=9"])
    assert not more.finished
    assert more.cfg.trainer.max_steps == 9
    # killed after it was made longer: the metrics are those of the shorter run
    run_folder.record(tmp_path, more.cfg, resumed=True)
    assert not continuation(longer, [f"resume={tmp_path}"]).finished


def resumed(folder: Path) -> Run:
    return continuation(OmegaConf.create({"resume": str(folder)}), [f"resume={folder}"])


def test_damaged_files_of_a_run_are_told_by_name_and_with_a_way_on(tmp_path: Path) -> None:
    cfg = config()
    run_folder.record(tmp_path, cfg, resumed=False)
    last, best = tmp_path / run_folder.LAST, tmp_path / "checkpoints/best.ckpt"
    content = {"global_step": 4, "pcnn_config": OmegaConf.to_container(cfg)}
    for path in (last, best):
        write_whole(content, path)
    assert resumed(tmp_path).checkpoint == last
    whole = last.read_bytes()
    last.write_bytes(whole[:500])
    with pytest.raises(FileError) as refused:
        resumed(tmp_path)
    assert refused.value.path == last
    last.write_bytes(whole)

    report.write_metrics(tmp_path, cfg, {}, 5, None)
    metrics = (tmp_path / "metrics.json").read_text()
    for torn in ("", metrics[:40], "{}", "[1]"):
        (tmp_path / "metrics.json").write_text(torn)
        with pytest.raises(FileError) as refused:
            resumed(tmp_path)
        assert refused.value.path == tmp_path / "metrics.json"
    (tmp_path / "metrics.json").write_text(metrics)

    written = (tmp_path / "config.yaml").read_text()
    for torn in ("", written[:20], "a: [", "- 1"):
        (tmp_path / "config.yaml").write_text(torn)
        with pytest.raises(FileError) as refused:
            resumed(tmp_path)
        assert refused.value.path == tmp_path / "config.yaml"
    (tmp_path / "config.yaml").unlink()
    found = resumed(tmp_path)
    assert (found.cfg.model, found.cfg.dataset) == (cfg.model, cfg.dataset)
    assert not found.finished


NAMES = ("floor", "wall", "chair")


def counts(seed: int) -> torch.Tensor:
    return torch.randint(0, 50, (3, 4), generator=torch.Generator().manual_seed(seed))


def test_counts_come_back_and_runs_are_joined_by_their_sum(tmp_path: Path) -> None:
    write_counts(tmp_path, {}, NAMES)
    assert not (tmp_path / CONFUSION).exists()
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        folder.mkdir()
        write_counts(folder, {"test": counts(seed), f"only {seed}": counts(2)}, NAMES)
        names, passes = read_counts(folder)
        assert names == NAMES
        assert torch.equal(passes["test"], counts(seed))
    both = joined(folders)
    assert set(both) == {"test"}
    truth, pred = (counts(0) + counts(1)).sum(1), (counts(0) + counts(1)).sum(0)[:3]
    right = (counts(0) + counts(1)).diagonal()
    assert float(miou_official(both["test"])) == pytest.approx(
        float((right / (truth + pred - right)).mean())
    )
    write_counts(folders[1], {"test": counts(1)}, NAMES[::-1])
    with pytest.raises(ValueError):
        joined(folders)
