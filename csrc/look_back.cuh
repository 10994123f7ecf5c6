// Decoupled look-back: prefix sums over tiles in one pass (Merrill & Garland, 2016).
//
// A tile publishes its own sum, then its inclusive prefix, as one word: two flag bits and 30 bits
// of value. Tiles take their numbers from a ticket, so every predecessor has already started.

#pragma once
#include "common.cuh"

#define TILE_SUM 0x40000000u
#define TILE_PREFIX 0x80000000u
#define TILE_VALUE 0x3fffffffu

// Sum of all tiles before this one, for the sequence whose words lie `stride` apart.
__device__ __forceinline__ u32 look_back(u32* status, u32 tile, u32 stride, u32 own) {
    u32* word = status + (u64)tile * stride;
    if (tile == 0) {
        store_release(word, own | TILE_PREFIX);
        return 0;
    }
    store_release(word, own | TILE_SUM);
    u32 before = 0;
    for (u32 t = tile; t-- > 0;) {
        u32 state;
        do
            state = load_acquire(status + (u64)t * stride);
        while ((state & (TILE_SUM | TILE_PREFIX)) == 0);
        before += state & TILE_VALUE;
        if (state & TILE_PREFIX) break;
    }
    store_release(word, (before + own) | TILE_PREFIX);
    return before;
}

// Exclusive prefix sum over the 256 threads of a block; `total` gets the sum.
__device__ __forceinline__ u32 block_prefix(u32 own, u32* total) {
    __shared__ u32 warp_sums[8];
    u32 inclusive = own;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        u32 other = __shfl_up_sync(FULL_MASK, inclusive, step);
        if (lane_index() >= step) inclusive += other;
    }
    if (lane_index() == WARP - 1) warp_sums[warp_index()] = inclusive;
    __syncthreads();
    u32 before = 0, all = 0;
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        if (w < warp_index()) before += warp_sums[w];
        all += warp_sums[w];
    }
    __syncthreads();
    *total = all;
    return before + inclusive - own;
}
