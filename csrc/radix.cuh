// State of a radix sort on the device, and the histogram that every sort begins with.
//
// Least significant digit first, 8 bits a pass. How many passes there are depends on the keys, so it
// is decided on the device; passes beyond it return at once. Words of the state, zeroed before:
//     0..7 tickets of the passes | 8 blocks that finished the histogram | 9 passes | 10 items
//     16.. histogram [8, 256], turned into first positions | then look-back words [8, tiles, 256]

#pragma once
#include "common.cuh"
#include "look_back.cuh"

#define RADIX 256
#define MAX_PASSES 8
#define STATE_DONE 8
#define STATE_PASSES 9
#define STATE_ITEMS 10
#define STATE_HISTOGRAM 16
#define STATE_STATUS (STATE_HISTOGRAM + MAX_PASSES * RADIX)

#define SORT_THREADS 256
#ifndef SORT_ITEMS
#define SORT_ITEMS 8
#endif
#define SORT_TILE (SORT_THREADS * SORT_ITEMS)

__device__ __forceinline__ u32 digit_of(u64 key, int pass) { return (u32)(key >> (8 * pass)) & 255u; }

// Number of bits that tell `values` different values apart.
__device__ __forceinline__ int bits_for(u64 values) { return values <= 1 ? 0 : 64 - __clzll((i64)(values - 1)); }

__device__ __forceinline__ int passes_for(int bits) { return (bits + 7) / 8; }

// Where the keys of pass `pass` lie, so that the last pass writes the first buffer.
__device__ __forceinline__ bool in_second_buffer(int passes, int pass) { return (passes - pass) & 1; }

// Count the digits of one key per lane (`valid` or not) into the block's histogram.
__device__ __forceinline__ void count_digits(u32 (*histogram)[RADIX], u64 key, bool valid, int passes) {
    for (int pass = 0; pass < passes; ++pass) {
        // neighbouring keys share their high digits: one addition a distinct digit, not a lane
        u32 digit = valid ? digit_of(key, pass) : RADIX;
        u32 peers = __match_any_sync(FULL_MASK, digit);
        if (valid && rank_below(peers) == 0) atomicAdd(&histogram[pass][digit], (u32)__popc(peers));
    }
}

// Add the block's histogram to the state; the last block turns counts into first positions.
__device__ __forceinline__ void finish_histogram(u32 (*histogram)[RADIX], u32* state, int passes, u32 items) {
    __shared__ bool last;
    u32* total = state + STATE_HISTOGRAM;
    __syncthreads();
    for (int pass = 0; pass < passes; ++pass) {
        u32 own = histogram[pass][threadIdx.x];
        if (own) atomicAdd(&total[pass * RADIX + threadIdx.x], own);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&state[STATE_DONE], 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int pass = 0; pass < passes; ++pass) {
        u32 all;
        u32 own = atomicAdd(&total[pass * RADIX + threadIdx.x], 0u);  // what the other blocks added
        total[pass * RADIX + threadIdx.x] = block_prefix(own, &all);
    }
    if (threadIdx.x == 0) {
        state[STATE_PASSES] = passes;
        state[STATE_ITEMS] = items;
    }
}
