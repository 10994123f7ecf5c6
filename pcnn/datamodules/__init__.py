"""Lightning data modules: labelled clouds, and pairs of clouds.

`exact_loading` makes the loaders of all of them, and skips or names what is damaged: `batch_stream`
places every batch, `packed` brings it from a worker process.
"""

from typing import TYPE_CHECKING

from pcnn.late import late

if TYPE_CHECKING:
    from pcnn.datamodules.clouds import CloudDataModule
    from pcnn.datamodules.pairs import RegistrationDataModule

__all__ = ["CloudDataModule", "RegistrationDataModule"]

# a segmentation needs no pairs
__getattr__ = late(
    __name__,
    {
        ".clouds": ("CloudDataModule",),
        ".pairs": ("RegistrationDataModule",),
    },
)
