"""Optional packages: the command that brings them, as all messages name it.

The distribution is not called as the package that is imported: ``pcnn`` on the Python package index
is another project.
"""

from __future__ import annotations

DISTRIBUTION = "pcnn3d"


def install(extra: str) -> str:
    """Return the command that adds an extra to the environment that this package is installed in.

    pip finds the installed distribution, from a checkout as from a wheel, and adds what the extra
    asks for.
    """
    return f"pip install '{DISTRIBUTION}[{extra}]'"
