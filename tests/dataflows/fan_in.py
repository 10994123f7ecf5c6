"""Room of the row lists of maps whose slots hold several inputs."""

import pytest

from pcnn.geometry import KernelMap, row_lists
from pcnn.geometry.slot_tiles import TILE_ROWS


def leave_room(monkeypatch: pytest.MonkeyPatch, kernel_map: KernelMap, steps: int) -> None:
    """Let row lists of maps of this size list so many steps, for the rest of a test."""
    far = 1 << 40
    sizes = kernel_map.triplets, -(-kernel_map.n_out // TILE_ROWS), kernel_map.volume
    monkeypatch.setattr(row_lists, "SPARE_STEPS", -far)
    own = row_lists.stored_steps(*sizes) + far
    monkeypatch.setattr(row_lists, "SPARE_STEPS", steps - own)
    assert row_lists.stored_steps(*sizes) == steps
