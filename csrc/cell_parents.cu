// Maps of native points for kernels that tile space: the slot of a point is its place in its coarse
// cell, its output the one point of that cell. Counted per (slot, chunk of rows), scanned, filled:
// rows and their parents ascend together, so order is kept without atomics.

#include "look_back.cuh"

#define ROWS 256  // input rows of a block: a chunk

struct ParentArguments {
    const i64* keys;    // [n] packed cells of the inputs
    const i64* parent;  // [n] output row of every input
    int* counts;        // [slots, chunks]
    const int* starts;  // [slots, chunks] first position inside the slot
    const i64* offsets; // [slots + 1]
    int* in_index;      // [n] by slot
    int* out_index;     // [n]
    int* row_outputs;   // [n] by input row: the same triplets read backwards, or null
    int* row_slots;     // [n]
    i64* row_offsets;   // [n + 1]
    i64 n, chunks;
    int bits[3];        // of x, y and z in a key
    int size[3];
};

// Slot of a row: cells modulo the size, also where they are negative.
__device__ __forceinline__ int place_in_parent(const ParentArguments& a, i64 row) {
    i64 key = a.keys[row];
    int part[3];
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
        const int cell = (int)(key & ((1ll << a.bits[axis]) - 1)) - (1 << (a.bits[axis] - 1));
        part[axis] = cell - floor_divide(cell, a.size[axis]) * a.size[axis];
        key >>= a.bits[axis];
    }
    return (part[0] * a.size[1] + part[1]) * a.size[2] + part[2];
}

KERNEL(count_places, ParentArguments, ROWS) {
    DYNAMIC_SHARED(shared);
    int* counts = (int*)shared;  // [slots]
    const int slots = a.size[0] * a.size[1] * a.size[2];
    for (int slot = threadIdx.x; slot < slots; slot += ROWS) counts[slot] = 0;
    __syncthreads();
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x;
    if (row < a.n) atomicAdd(&counts[place_in_parent(a, row)], 1);
    __syncthreads();
    for (int slot = threadIdx.x; slot < slots; slot += ROWS) a.counts[slot * a.chunks + blockIdx.x] = counts[slot];
}

KERNEL(fill_parents, ParentArguments, ROWS) {
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x;
    const int slots = a.size[0] * a.size[1] * a.size[2];
    const int own = row < a.n ? place_in_parent(a, row) : -1;
    for (int slot = 0; slot < slots; ++slot) {
        const i64 cell = slot * a.chunks + blockIdx.x;
        if (!a.counts[cell]) continue;  // the whole block agrees
        u32 all;
        const i64 to = a.offsets[slot] + a.starts[cell] + block_prefix((u32)(own == slot), &all);
        if (own != slot) continue;
        a.in_index[to] = (int)row;
        a.out_index[to] = (int)a.parent[row];
    }
}

// The transposed map by row: every input has one output.
KERNEL(list_parents, ParentArguments, ROWS) {
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x;
    if (row == 0) a.row_offsets[a.n] = a.n;
    if (row >= a.n) return;
    a.row_outputs[row] = (int)a.parent[row];
    a.row_slots[row] = place_in_parent(a, row);
    a.row_offsets[row] = row;
}
