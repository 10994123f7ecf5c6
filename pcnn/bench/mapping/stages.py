"""The stages of a map build, told apart in the trace of one call.

What runs before the first search kernel prepares it (sorting, packing, filling a hash table), what
runs after the last one finishes the product. So only the names of search kernels must be known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pcnn.bench.charts import STAGES
from pcnn.bench.trace import KernelTime

#: Names of kernels, and of torch's operators on a CPU, that search. `split_queries` is the backward
#: half of the double-traversed search; `disjoint_map` looks for the one parent of every site.
SEARCH = re.compile(r"search|split_queries|z_delta|disjoint|first_windows", re.IGNORECASE)
#: Names that the pattern above meets but that do not search.
NO_SEARCH = re.compile(r"sort(?!ed)", re.IGNORECASE)


def searches(name: str) -> bool:
    """Whether a kernel of this name looks for neighbours."""
    return bool(SEARCH.search(name)) and not NO_SEARCH.search(name)


def split(timeline: Sequence[KernelTime]) -> dict[str, float]:
    """Device time of every stage of a call [ms]; no search means that all is preparation.

    Args:
        timeline: launches in the order in which the device began them.
    """
    found = [place for place, kernel in enumerate(timeline) if searches(kernel.name)]
    first, last = (found[0], found[-1]) if found else (len(timeline), len(timeline))
    sums = dict.fromkeys(STAGES, 0.0)
    for place, kernel in enumerate(timeline):
        stage = "prepare" if place < first else "search" if place <= last else "finish"
        sums[stage] += kernel.microseconds / 1e3
    return sums
