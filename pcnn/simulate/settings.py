"""Settings that are drawn: dataclasses whose fields tell their ranges."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any, Literal, get_args

import numpy as np

Split = Literal["train", "val", "test"]
Range = tuple[float, float]


def drawn(train: Range, held_out: Range | None = None) -> Any:
    """Declare a field that is drawn evenly; ``val`` and ``test`` may have a range of their own."""
    return field(metadata={"train": train, "held_out": held_out or train})


def draw(rng: np.random.Generator, settings: type, split: Split = "train") -> dict[str, float]:
    """Draw the fields of a dataclass that were declared by `drawn` in it and not in a base."""
    if split not in get_args(Split):
        raise ValueError(f"split {split!r} is unknown; use 'train', 'val' or 'test'")
    ranges = "train" if split == "train" else "held_out"
    own = [f for f in fields(settings) if f.metadata and f.name in settings.__annotations__]
    return {f.name: round(float(rng.uniform(*f.metadata[ranges])), 6) for f in own}
