"""Devices of a training, graphs of steps, and precision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf import DictConfig

from pcnn.errors import ConfigError
from pcnn.experiment import build
from pcnn.experiment.build import on_this_machine
from pcnn.experiment.run_config import checked
from tests.experiment import sweep


def composed(*overrides: str) -> DictConfig:
    return checked(sweep.composed(*overrides))


def machine(monkeypatch: pytest.MonkeyPatch, devices: int, device: str = "cuda") -> None:
    """Let a trainer find so many devices, as far as it is told to take them all."""

    def trainer(cfg: DictConfig, *_: object) -> SimpleNamespace:
        asked = cfg.trainer.devices
        taken = devices if str(asked) in ("auto", "-1") else asked
        root = SimpleNamespace(root_device=torch.device(device))
        return SimpleNamespace(num_devices=taken, num_nodes=cfg.trainer.num_nodes, strategy=root)

    monkeypatch.setattr(build, "trainer", trainer)


@pytest.mark.parametrize(
    ("device", "overrides", "taken", "line"),
    [
        ("cpu", [], False, None),
        ("cpu", ["trainer.precision=16-mixed"], False, "needs a GPU"),
        ("cpu", ["trainer.cuda_graphs=true"], False, "needs a CUDA device"),
        ("cuda", [], True, None),
        ("cuda", ["trainer.cuda_graphs=false"], False, None),
        ("cuda", ["trainer=ddp"], False, "sync_batchnorm"),
        ("cuda", ["trainer.strategy=fsdp"], False, "strategy=fsdp"),
        ("cuda", ["task.loss._target_=torch.nn.CrossEntropyLoss"], False, "parts of this package"),
    ],
)
def test_graphs_of_steps(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    overrides: list[str],
    taken: bool,
    line: str | None,
) -> None:
    machine(monkeypatch, 1, device)
    own = [one for one in overrides if "torch" not in one]
    cfg = composed(*own)
    if own != overrides:
        cfg.task.loss = {"_target_": "torch.nn.CrossEntropyLoss"}
    cfg.words = overrides
    cfg, _, lines = on_this_machine(cfg, Path())
    assert cfg.trainer.cuda_graphs is taken
    assert cfg.trainer.precision == ("16-mixed" if device == "cuda" else "32-true")
    if line is None:
        assert not lines
    else:
        assert lines[0].startswith(("steps run eagerly: ", "precision: "))
        assert line in lines[0]


def test_an_absent_gpu_is_named_with_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"^trainer"):
        on_this_machine(composed("trainer.accelerator=gpu"), tmp_path)
