"""Where the numbers stand that a plan on voxels reports from its device."""

from pcnn.maps.levels import EXTENT_WORDS

#: Behind the extent of the cloud: the passes that sorting the finest sites and the levels took, the
#: words that bitmaps take, and the number of finest sites. Those of all other levels follow.
HEAD = EXTENT_WORDS + 4
ROOT_PASSES, LEVEL_PASSES, WORDS, FINEST = range(EXTENT_WORDS, HEAD)
