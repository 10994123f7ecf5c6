"""Lightning data modules: labelled clouds, and pairs of clouds.

`exact_loading` makes the loaders of all of them, and skips or names what is damaged: `batch_stream`
places every batch, `packed` brings it from a worker process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcnn.datamodules.clouds import ClassificationDataModule, CloudDataModule
    from pcnn.datamodules.pairs import PairSource, RegistrationDataModule

__all__ = ["ClassificationDataModule", "CloudDataModule", "PairSource", "RegistrationDataModule"]


def __getattr__(name: str) -> Any:
    """Import a module when it is first asked for: a segmentation needs no pairs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "clouds" if "Cloud" in name or "Classification" in name else "pairs"
    return getattr(import_module(f"{__name__}.{home}"), name)
