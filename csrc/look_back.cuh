// Decoupled look-back: prefix sums over tiles in one pass (Merrill & Garland, 2016).
//
// A tile publishes its own sum, then its inclusive prefix, as one word: two flag bits and 30 bits
// of value. Tiles take their numbers from a ticket, so every predecessor has already started.

#pragma once
#include "common.cuh"

#define TILE_SUM 0x40000000u
#define TILE_PREFIX 0x80000000u
#define TILE_VALUE 0x3fffffffu

#define TILES_AT_ONCE 8

// A word holds flag and value together, so it may be read without ordering anything else.
__device__ __forceinline__ u32 peek(const u32* word) { return *(const volatile u32*)word; }

// Sum of all tiles before this one, for the sequence whose words lie `stride` apart. Each thread may
// follow a sequence of its own. Several predecessors are read at once: they often publish together,
// and a chain of dependent reads would cost a trip to the L2 each.
__device__ __forceinline__ u32 look_back(u32* status, u32 tile, u32 stride, u32 own) {
    u32* word = status + (u64)tile * stride;
    if (tile == 0) {
        *(volatile u32*)word = own | TILE_PREFIX;
        return 0;
    }
    *(volatile u32*)word = own | TILE_SUM;
    u32 before = 0;
    int t = (int)tile - 1;
    for (bool searching = true; searching;) {
        u32 state[TILES_AT_ONCE];
#pragma unroll
        for (int i = 0; i < TILES_AT_ONCE; ++i)
            state[i] = t - i >= 0 ? peek(status + (u64)(t - i) * stride) : TILE_PREFIX;
#pragma unroll
        for (int i = 0; i < TILES_AT_ONCE; ++i) {
            if (!searching) continue;
            while ((state[i] & (TILE_SUM | TILE_PREFIX)) == 0) state[i] = peek(status + (u64)(t - i) * stride);
            before += state[i] & TILE_VALUE;
            if (state[i] & TILE_PREFIX) searching = false;
        }
        t -= TILES_AT_ONCE;
    }
    *(volatile u32*)word = (before + own) | TILE_PREFIX;
    return before;
}

// The same for one sequence, by a whole warp: 32 predecessors at once.
__device__ __forceinline__ u32 warp_look_back(u32* status, u32 tile, u32 own) {
    if (lane_index() == 0) *(volatile u32*)(status + tile) = own | (tile ? TILE_SUM : TILE_PREFIX);
    u32 before = 0;
    for (int t = (int)tile - 1; t >= 0; t -= WARP) {
        int mine = t - lane_index();
        u32 state = TILE_PREFIX;
        if (mine >= 0)
            do
                state = peek(status + mine);
            while ((state & (TILE_SUM | TILE_PREFIX)) == 0);
        u32 prefixes = __ballot_sync(FULL_MASK, (state & TILE_PREFIX) != 0);
        int nearest = prefixes ? __ffs((int)prefixes) - 1 : WARP - 1;
        before += __reduce_add_sync(FULL_MASK, lane_index() <= nearest ? state & TILE_VALUE : 0u);
        if (prefixes) break;
    }
    if (tile && lane_index() == 0) *(volatile u32*)(status + tile) = (before + own) | TILE_PREFIX;
    return before;
}

// Exclusive prefix sum over the 256 threads of a block; `total` gets the sum.
__device__ __forceinline__ u32 block_prefix(u32 own, u32* total) {
    __shared__ u32 warp_sums[8];
    const u32 inclusive = sum_to_lane(own);
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
