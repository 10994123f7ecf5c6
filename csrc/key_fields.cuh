// Fields of packed keys, the extent of a cloud in them, and the strides of a network's levels.

#pragma once
#include "common.cuh"

#define MAX_LEVELS 12

// 0 | batch | x | y | z, every axis biased by half its range; the sentinel is the key of a spare row.
#define BATCH_BITS 9
#define AXIS_BITS 18
#define BATCH_SHIFT (3 * AXIS_BITS)
#define AXIS_HALF (1 << (AXIS_BITS - 1))
#define SENTINEL 0x7fffffffffffffffll

// Extent of a cloud, as maxima of unsigned numbers so that zeroed memory is the empty extent.
struct Extent {
    u32 above[4];  // batch, x, y, z: largest field + 1
    u32 below[4];  // 2^bits - smallest field
    u32 overflow;  // bit f: some cell does not fit field f; 256: levels exceed a sort key
};

__device__ __forceinline__ int field_bits(int f) { return f ? AXIS_BITS : BATCH_BITS; }

__device__ __forceinline__ int field_half(int f) { return f ? AXIS_HALF : 0; }

__device__ __forceinline__ u32 field_of(i64 key, int f) {
    return (u32)(key >> (3 - f) * AXIS_BITS) & ((1u << field_bits(f)) - 1u);
}

// The batch index, or a coordinate.
__device__ __forceinline__ int coordinate_of(i64 key, int f) { return (int)field_of(key, f) - field_half(f); }

struct Stride {
    int axis[3];
};

// How coordinate fields become cells: divided by the tensor stride, biased so that every cell is
// exact and not negative.
struct Cells {
    int spacing[3];
    int bias[3];
};

__device__ __forceinline__ int cell_of(const Cells& cells, i64 key, int axis) {
    return (int)((field_of(key, axis + 1) + cells.bias[axis]) / (u32)cells.spacing[axis]);
}
