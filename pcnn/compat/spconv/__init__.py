"""spconv 2's names: ``import pcnn.compat.spconv.pytorch as spconv`` runs code written for it.

The names of `pytorch` are here too. `docs/compat_spconv.md` says what is equal and what differs.
"""

from typing import Any

from pcnn.compat.spconv import core, pytorch
from pcnn.compat.spconv.core import ConvAlgo

__all__ = ["SPCONV_VERSION_NUMBERS", "ConvAlgo", "core", "pytorch"]

#: The release whose interface this is: programs ask it for what a version can do.
__version__ = "2.3.8"
SPCONV_VERSION_NUMBERS = [2, 3, 8]


def __getattr__(name: str) -> Any:
    return getattr(pytorch, name)


def __dir__() -> list[str]:
    return sorted([*__all__, *pytorch.__all__])
