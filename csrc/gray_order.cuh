// Where a row stands in the order of tiles, from the columns that it fills: Gray code of a mask whose
// bits are columns by falling frequency (pcnn/geometry/gray_order.py).

#pragma once
#include "common.cuh"

// The including file defines the number of bits: OWN_BITS for the most frequent columns, one each, and
// FOLDED_BITS for all other columns, where they are more.
#define GRAY_BITS (OWN_BITS + FOLDED_BITS)
#define SAMPLED 1024    // rows at most whose columns are counted

__device__ __forceinline__ u32 gray_rank(u32 mask) {
    for (int shift = 1; shift < 32; shift *= 2) mask ^= mask >> shift;
    return mask;
}

// The rows that are counted are 0, step, 2 step, ...
__device__ __forceinline__ i64 sampling_step(i64 rows) { return rows > SAMPLED ? (rows + SAMPLED - 1) / SAMPLED : 1; }

// Bit of every column, by the threads of a block, from how often each was counted.
__device__ __forceinline__ void assign_bits(const int* counts, int columns, int* bits) {
    for (int column = threadIdx.x; column < columns; column += blockDim.x) {
        const int own = counts[column];
        int rank = 0;
        for (int other = 0; other < columns; ++other)
            rank += counts[other] > own || (counts[other] == own && other < column);
        const bool folded = columns > GRAY_BITS && rank >= OWN_BITS;
        bits[column] = folded ? OWN_BITS + (rank - OWN_BITS) * FOLDED_BITS / (columns - OWN_BITS) : rank;
    }
}
