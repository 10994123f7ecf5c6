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
    u32 added[MAX_PASSES];  // by all blocks; read at once, as every read is a trip to the L2
#pragma unroll
    for (int pass = 0; pass < MAX_PASSES; ++pass)
        added[pass] = pass < passes ? atomicAdd(&total[pass * RADIX + threadIdx.x], 0u) : 0u;
#pragma unroll
    for (int pass = 0; pass < MAX_PASSES; ++pass) {
        u32 all;
        if (pass < passes) total[pass * RADIX + threadIdx.x] = block_prefix(added[pass], &all);
    }
    if (threadIdx.x == 0) {
        state[STATE_PASSES] = passes;
        state[STATE_ITEMS] = items;
    }
}

// Both sides of every pass, as a sort's scratch hands them to the kernel that writes its keys.
struct SortBuffers {
    u64* keys_a;
    u64* keys_b;
    u32* values_a;
    u32* values_b;
    u32* state;
};

// Write keys and values, and count the digits of the keys: `key_of(item, &value)` says what they are.
// For any number of blocks of 256 threads.
template <typename Buffers, typename KeyOf>
__device__ __forceinline__ void write_sort_keys(const Buffers& sort, i64 items, int passes, KeyOf key_of) {
    __shared__ u32 histogram[MAX_PASSES][RADIX];
    for (int pass = 0; pass < MAX_PASSES; ++pass) histogram[pass][threadIdx.x] = 0;
    __syncthreads();
    const bool second = in_second_buffer(passes, 0);
    auto* keys = second ? sort.keys_b : sort.keys_a;
    u32* values = second ? sort.values_b : sort.values_a;
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 base = (i64)blockIdx.x * blockDim.x; base < items; base += step) {
        const i64 item = base + threadIdx.x;
        const bool valid = item < items;
        u64 key = 0;
        if (valid) {
            u32 value = (u32)item;
            key = key_of(item, &value);
            keys[item] = key;
            values[item] = value;
        }
        count_digits(histogram, key, valid, passes);
    }
    finish_histogram(histogram, sort.state, passes, (u32)items);
}
