"""Lightning data modules: labelled clouds, and pairs of clouds.

`exact_loading` makes the loaders of all of them: `batch_stream` places every batch, `packed` brings
it from a worker process, `unreadable` skips or names what is damaged.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcnn.datamodules.clouds import ClassificationDataModule, CloudDataModule
    from pcnn.datamodules.pairs import (
        MixedPairsDataModule,
        PairSource,
        RegistrationDataModule,
    )

__all__ = [
    "ClassificationDataModule",
    "CloudDataModule",
    "MixedPairsDataModule",
    "PairSource",
    "RegistrationDataModule",
]

# imported when they are asked for: a segmentation needs no pairs
_HOMES = {
    "ClassificationDataModule": "pcnn.datamodules.clouds",
    "CloudDataModule": "pcnn.datamodules.clouds",
    "MixedPairsDataModule": "pcnn.datamodules.pairs",
    "PairSource": "pcnn.datamodules.pairs",
    "RegistrationDataModule": "pcnn.datamodules.pairs",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
