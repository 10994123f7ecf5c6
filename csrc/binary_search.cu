// Simple binary search of packed keys: the whole list is searched once for every output and slot.
//
// The baseline of z-delta search (Spira, section 6.4): same keys, same tiles, same writes.
//
// variants: KEY_BITS=64 LAYOUT=0

#include "packed_search.cuh"

KERNEL(binary_search, SearchArguments, SEARCH_THREADS) { search_tile<false>(a, blockIdx.x); }
