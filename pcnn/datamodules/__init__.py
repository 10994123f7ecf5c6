"""Lightning data modules: labelled clouds, and pairs of clouds.

`exact_loading` makes their loaders, `batch_stream` places a batch, `packed` brings it over.
"""

from typing import TYPE_CHECKING

from pcnn.late import late

if TYPE_CHECKING:
    from pcnn.datamodules.clouds import CloudDataModule
    from pcnn.datamodules.pairs import RegistrationDataModule

__all__ = ["CloudDataModule", "RegistrationDataModule"]

# a segmentation needs no pairs
__getattr__ = late(
    __name__, {".clouds": ("CloudDataModule",), ".pairs": ("RegistrationDataModule",)}
)
