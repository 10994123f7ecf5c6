// Fields of packed keys, the extent of a cloud in them, and the strides of a network's levels.

#pragma once
#include "common.cuh"

#define MAX_LEVELS 12

// Widths of a packed key: 0 | batch | x | y | z, every axis biased by half its range.
struct KeyFields {
    int bits[3];
    int batch_bits;
};

// Extent of a cloud, as maxima of unsigned numbers so that zeroed memory is the empty extent.
struct Extent {
    u32 above[4];  // batch, x, y, z: largest field + 1
    u32 below[4];  // 2^bits - smallest field
    u32 overflow;  // bit f: some cell does not fit field f; 256: levels exceed a sort key
};

__device__ __forceinline__ int field_bits(const KeyFields& fields, int f) {
    return f == 0 ? fields.batch_bits : fields.bits[f - 1];
}

__device__ __forceinline__ u32 field_of(const KeyFields& fields, i64 key, int f) {
    int shift = 0;
    for (int g = 3; g > f; --g) shift += fields.bits[g - 1];
    return (u32)(key >> shift) & ((1u << field_bits(fields, f)) - 1u);
}

struct Stride {
    int axis[3];
};

// How a key splits into cells: coordinate fields divided by the tensor stride, biased so that
// every cell is exact and not negative.
struct Cells {
    int shift[3];
    int bits[3];
    int spacing[3];
    int bias[3];
    int batch_shift;
};

__device__ __forceinline__ u32 field_of(const Cells& cells, i64 key, int axis) {
    return (u32)(key >> cells.shift[axis]) & ((1u << cells.bits[axis]) - 1u);
}

__device__ __forceinline__ int cell_of(const Cells& cells, i64 key, int axis) {
    return (int)((field_of(cells, key, axis) + cells.bias[axis]) / (u32)cells.spacing[axis]);
}
