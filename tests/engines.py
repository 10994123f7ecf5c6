"""Everything that promises the same triplets or the same values; a new engine is one line here."""

from __future__ import annotations

from pcnn.dataflows import Blocked, Dataflow, Reference
from pcnn.maps import BruteForce, MapBuilder, SortedSearch

BUILDERS: list[MapBuilder] = [BruteForce(), SortedSearch()]
DATAFLOWS: list[Dataflow] = [Reference(), Blocked()]
