"""Map builders: (input sites, output sites, kernel) to a kernel map."""

from pcnn.maps.automatic import Automatic
from pcnn.maps.base import MapBuilder
from pcnn.maps.brute_force import BruteForce
from pcnn.maps.sorted_search import SortedSearch
from pcnn.maps.windowed import Windowed

__all__ = ["Automatic", "BruteForce", "MapBuilder", "SortedSearch", "Windowed"]
