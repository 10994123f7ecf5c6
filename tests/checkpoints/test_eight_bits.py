"""Weights in 8 bits come back within half a step of their group, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from pcnn.checkpoints import RunCheckpoint
from pcnn.checkpoints.exported_file import SCALE, packed, restored, write_exported
from pcnn.errors import FileError

FILE = Path("a.safetensors")


def back(weight: Tensor) -> Tensor:
    return restored(packed("w", weight), FILE)["w"]


def half_steps(weight: Tensor) -> Tensor:
    """Half a step of every group, in float64, by the definition and not by the code."""
    groups = weight.double().movedim(-2, 0)
    return torch.stack(list(groups)).abs().max(0).values.unsqueeze(-2) / 254


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (torch.float16, (1e-8, 1e-3, 1.0, 6e4)),
        (torch.bfloat16, (1e-30, 1e-8, 1.0, 6e4)),
        (torch.float32, (1e-30, 1e-8, 1e-3, 1.0, 6e4, 1e30)),
        (torch.float64, (1e-30, 1.0, 1e30)),
    ],
)
def test_every_weight_is_within_half_a_step(dtype: torch.dtype, sizes: tuple[float, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    for shape in ((27, 5, 3), (1, 7, 2), (125, 1, 4), (3, 6), (1, 1), (2, 3, 4, 5)):
        spread = torch.randn((*shape[:-2], 1, shape[-1]), generator=generator).exp()  # of groups
        unit = (torch.randn(shape, generator=generator) * spread).clamp(-1, 1)
        for size in sizes:
            weight = (unit.double() * size).to(dtype)
            assert bool(weight.isfinite().all())
            found = back(weight)
            assert found.dtype == torch.float32
            error = (found.double() - weight.double()).abs()
            # and a rounding of float32 of the weight itself
            most = half_steps(weight) * (1 + 1e-4) + weight.double().abs() * 1e-6
            assert bool((error <= most).all()), (shape, size)
            if shape == (27, 5, 3) and size == 1.0:
                assert bool(error.any()), "a bound on nothing"


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    whole = {"bias": torch.ones(3), **packed("w", torch.randn(2, 5, 3))}
    scale = whole[f"w{SCALE}"]

    def read(**changed: Tensor | None) -> dict[str, Tensor]:
        state = {**whole, **{name.replace("__", ":"): value for name, value in changed.items()}}
        kept = {name: value for name, value in state.items() if value is not None}
        write_exported(path, kept, {"global_step": 1})
        return RunCheckpoint.read(path).weights

    assert read().keys() == {"bias", "w"}
    torch.testing.assert_close(read()["w"], whole["w"] * scale)
    damages: tuple[dict[str, Tensor | None], ...] = (
        {"w__scale": None},
        {"bias__scale": scale.clone()},
        {"w": whole["w"].float()},
        {"w": whole["w"].short()},
        {"w": whole["w"][:, :, :2]},
        *({"w__scale": one} for one in (scale[:1], scale[0, 0])),
    )
    for changed in damages:
        with pytest.raises(FileError) as refused:
            read(**changed)
        assert refused.value.path == path
