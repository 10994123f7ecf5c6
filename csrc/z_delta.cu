// Z-delta search (Spira, section 5.2): one binary search for the K_z slots of equal (x, y).
//
// Sorted keys of equal (x, y) are consecutive and ascend in z. Once the slot of the smallest z is
// found (the anchor), the others follow by steps forward: K_x K_y searches a row, not K_x K_y K_z.
//
// variants: KEY_BITS=64 | KEY_BITS=32
// variants: LAYOUT=0 | LAYOUT=1 | LAYOUT=2 | LAYOUT=3

#include "network.cuh"
#include "packed_search.cuh"

KERNEL(z_delta, SearchArguments, SEARCH_THREADS) { search_tile<true>(a, blockIdx.x); }

#if LAYOUT == HYBRID
typedef Network<SearchArguments> NetworkSearch;

// All maps of a network (section 5.5): blocks of different maps run side by side.
KERNEL(z_delta_network, NetworkSearch, SEARCH_THREADS) {
    int block;
    const SearchArguments& map = a.own(block);
    search_tile<true>(map, block);
}
#endif
