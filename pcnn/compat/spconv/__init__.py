"""spconv 2's names: ``import pcnn.compat.spconv.pytorch as spconv`` runs code written for it.

The names of `pytorch` are here too. `docs/compat_spconv.md` says what is equal and what differs.
"""

from typing import Any

from pcnn.compat.spconv import pytorch

#: The release whose interface this is: programs ask it for what a version can do.
__version__ = "2.3.8"


def __getattr__(name: str) -> Any:
    return getattr(pytorch, name)
