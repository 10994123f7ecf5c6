"""Devices of a training, shares of a step, and precision."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf import DictConfig

from pcnn.errors import ConfigError
from pcnn.experiment import build
from pcnn.experiment.devices import on_this_machine
from pcnn.experiment.run_config import checked
from tests.experiment import sweep
from tests.experiment.sweep import CONF


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
    ("recipe", "devices", "found"),
    [
        ("semantic_kitti_minkunet", 3, (2, 2, 4)),
        ("semantic_kitti_minkunet_mix", 8, (8, 2, 1)),
        ("semantic_kitti_minkunet", 16, (16, 1, 1)),
        ("s3dis_minkunet", 1, (1, 3, 4)),
        ("s3dis_minkunet", 8, (6, 2, 1)),
    ],
)
def test_a_step_holds_as_many_samples_on_any_machine(
    monkeypatch: pytest.MonkeyPatch, recipe: str, devices: int, found: tuple[int, int, int]
) -> None:
    machine(monkeypatch, devices)
    cfg, _, (*_, line) = on_this_machine(composed(f"experiment={recipe}"), Path())
    trainer = cfg.trainer
    assert (trainer.devices, cfg.dataset.batch_size, trainer.accumulate_grad_batches) == found
    assert found[0] * found[1] * found[2] == cfg.global_batch_size
    assert f"samples of a step: {cfg.global_batch_size} = {found[0]} device" in line
    assert on_this_machine(cfg, Path())[0] == cfg  # as a resumed run does
    # the other ranks, which the first one has started
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(found[0]))
    assert on_this_machine(composed(f"experiment={recipe}"), Path())[0] == cfg


def test_samples_that_devices_cannot_share_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 8)
    for overrides, said in (
        (("global_batch_size=16", "trainer.devices=3"), "global_batch_size"),
        (("global_batch_size=0",), "global_batch_size"),
        (
            ("global_batch_size=8", "trainer.accumulate_grad_batches=2"),
            "trainer.accumulate_grad_batches",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            on_this_machine(composed(*overrides), Path())
    cfg, _, lines = on_this_machine(composed("trainer.accumulate_grad_batches=2"), Path())
    assert (cfg.trainer.accumulate_grad_batches, lines) == (2, [])


@pytest.mark.parametrize("recipe", sorted(path.stem for path in CONF.glob("experiment/*.yaml")))
def test_recipes_take_a_machine_without_a_gpu(
    tmp_path: Path, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    cfg, device, lines = on_this_machine(composed(f"experiment={recipe}"), tmp_path)
    assert device.type == "cpu"
    assert cfg.trainer.precision == "32-true"
    assert any("needs a GPU" in line for line in lines) == (
        "fcgf" not in recipe or "quick" in recipe
    )
    made = build.trainer(cfg, tmp_path, [], [])
    assert made.num_devices == 1
    batch = cfg.dataset.batch_size * made.accumulate_grad_batches
    assert batch == (cfg.global_batch_size or cfg.dataset.batch_size)


@pytest.mark.parametrize(
    ("device", "overrides", "taken", "line"),
    [
        ("cpu", [], False, None),
        ("cpu", ["trainer.cuda_graphs=true"], False, "needs a CUDA device"),
        ("cuda", [], True, None),
        ("cuda", ["trainer.cuda_graphs=true"], True, None),
        ("cuda", ["trainer.cuda_graphs=false"], False, None),
        ("cuda", ["geometry=point"], True, None),
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
    cfg, _, lines = on_this_machine(cfg, Path())
    assert cfg.trainer.cuda_graphs is taken
    if line is None:
        assert not lines
    else:
        assert lines[0].startswith("steps run eagerly: ")
        assert line in lines[0]


def test_an_absent_gpu_is_named_with_what_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"trainer\.accelerator"):
        on_this_machine(composed("trainer.accelerator=gpu"), tmp_path)


def test_validations_are_counted_in_optimiser_steps(tmp_path: Path) -> None:
    def interval(*overrides: str) -> float | int | None:
        return build.trainer(
            composed("trainer=cpu", *overrides), tmp_path, [], []
        ).val_check_interval

    assert interval() == 125
    assert interval("trainer.accumulate_grad_batches=4") == 500
    epochs = ("trainer.val_check_interval=1.0", "trainer.check_val_every_n_epoch=1")
    assert interval("trainer.accumulate_grad_batches=4", *epochs) == 1.0
