"""Map builders: (input sites, output sites, kernel) to a kernel map."""

from pcnn.maps.double_traversed import DoubleTraversed
from pcnn.maps.hash_table import HashTable
from pcnn.maps.host_search import BruteForce, SortedSearch
from pcnn.maps.windowed import Windowed
from pcnn.maps.z_delta import ZDelta

__all__ = [
    "BruteForce",
    "DoubleTraversed",
    "HashTable",
    "SortedSearch",
    "Windowed",
    "ZDelta",
]
