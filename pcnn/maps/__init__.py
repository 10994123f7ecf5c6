"""Map builders: (input sites, output sites, kernel) to a kernel map."""

from pcnn.maps.base import MapBuilder
from pcnn.maps.brute_force import BruteForce
from pcnn.maps.sorted_search import SortedSearch

__all__ = ["BruteForce", "MapBuilder", "SortedSearch"]
