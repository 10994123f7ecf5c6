"""Tensors in memory of fixed size, with what is spare behind them: in one launch as in torch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from pcnn.geometry.tile_steps import TILE_ROWS
from pcnn.maps import place as module
from pcnn.maps.place import MAX_PARTS, WORDS, Part, place, place_in_torch


def part(values: Tensor, room: Sequence[int], spare: float | None, shift: int = 0) -> Part:
    """Memory full of sevens, which begins so many numbers behind an aligned place."""
    own = torch.full((shift + torch.Size(room).numel(),), 7, dtype=values.dtype)
    return Part(own[shift:].view(room), values, spare)


def parts() -> list[Part]:
    draw = torch.Generator().manual_seed(0)
    ints = torch.randint(0, 99, (2 * WORDS + 37,), dtype=torch.int32, generator=draw)
    floats = torch.randn(301, 4, generator=draw)
    out = torch.randperm(TILE_ROWS * 3, dtype=torch.int32, generator=draw).view(3, TILE_ROWS)
    out[1, 100:] = -1  # the first tile has fewer slots than this one
    made = [
        part(ints, (3 * WORDS,), -1),
        part(ints, (2 * WORDS + 40,), None),
        part(ints[1:], (2 * WORDS + 40,), 255, shift=1),  # aligned on neither side
        part(ints.long() << 33, (2 * WORDS + 128,), (1 << 62) - 1),
        part(floats, (384, 4), 0),
        part(floats.double(), (384, 4), -0.5),
        part(floats.half(), (384, 4), 0),  # less than 32 bits, with spare numbers
        part(floats[:, 0].half(), (384,), None),  # an odd number of them
        part(floats.half(), (384, 4), None),
        part(floats[1:].half(), (384, 4), None, shift=2),
        part(floats.half(), (384, 4), None, shift=1),
        part(ints[:0], (5,), 3),
        part(ints[:5], (5,), 3),
        part(floats.t()[:3], (3, 301), None),  # no rows of memory
        part(floats, (384, 4), None)._replace(source=floats.double()),  # of another dtype
        part(out, (5, TILE_ROWS), None)._replace(first=2 * TILE_ROWS),
    ]
    return made + [part(ints[:n], (n + 2,), n) for n in range(MAX_PARTS)]


def test_all_parts_in_two_launches(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, found = (
        parts(),
        [one._replace(own=one.own.to(device), source=one.source.to(device)) for one in parts()],
    )
    launched: list[int] = []
    launch = module._launch

    def counted(of: Sequence[Part], on: torch.device) -> None:
        launched.append(len(of))
        launch(of, on)

    monkeypatch.setattr(module, "_launch", counted)
    for one in expected:
        place_in_torch(one)
    place(found)
    served = sum(map(module._in_words, found))  # copies on a device begin at whole words
    assert served in (len(found) - 4, len(found) - 3)
    assert launched == [MAX_PARTS, served - MAX_PARTS]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.own.cpu(), other.own)
        flat = other.own.reshape(-1)[: other.source.numel()]
        assert one.first is not None or torch.equal(flat, other.source.reshape(-1))
        assert one.spare is None or (other.own.reshape(-1)[len(flat) :] == one.spare).all()
