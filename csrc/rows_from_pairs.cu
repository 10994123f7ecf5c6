// Triplets by output row, from triplets by slot: a stable sort by row keeps slots ascending.

#include "radix.cuh"

struct RowKeysArguments {
    const int* out_index;  // [n]
    SortBuffers sort;
    i64 n;
    int passes;
};

// Rows as sort keys, and their digits counted.
KERNEL(row_keys, RowKeysArguments, 256) {
    write_sort_keys(a.sort, a.n, a.passes, [&](i64 i, u32*) { return (u64)a.out_index[i]; });
}

// Slot of a triplet: the last one that begins at or before it, as empty slots begin with the next.
__device__ __forceinline__ int slot_of(const i64* offsets, int volume, i64 position) {
    return (int)lower_bound(offsets + 1, (i64)volume, position + 1);
}

// Where the rows begin that start with triplet `i` of the sorted list, those without any too.
__device__ __forceinline__ void begin_rows(const u64* rows, i64 i, i64 n, i64 n_out, i64* row_offsets) {
    const i64 row = (i64)rows[i], before = i ? (i64)rows[i - 1] : -1;
    for (i64 r = before + 1; r <= row; ++r) row_offsets[r] = i;
    if (i == n - 1)
        for (i64 r = row + 1; r <= n_out; ++r) row_offsets[r] = n;
}

struct ListRowsArguments {
    const u64* rows;      // [n] sorted
    const u32* order;     // [n] positions by slot
    const int* in_index;  // [n] by slot
    const i64* offsets;   // [volume + 1] where slots begin
    int* row_in_index;    // [n] by row
    int* row_slots;       // [n]
    i64* row_offsets;     // [n_out + 1]
    i64 n, n_out;
    int volume;
};

KERNEL(list_rows, ListRowsArguments, 256) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= a.n) return;
    const i64 from = a.order[i];
    a.row_in_index[i] = a.in_index[from];
    a.row_slots[i] = slot_of(a.offsets, a.volume, from);
    begin_rows(a.rows, i, a.n, a.n_out, a.row_offsets);
}

struct ListPositionsArguments {
    const u64* rows;     // [n] sorted
    const u32* order;    // [n] positions by slot
    const i64* offsets;  // [volume + 1] where slots begin
    int* position;       // [n] by row
    short* slot;         // [n]
    i64* row_offsets;    // [n_out + 1]
    i64 n, n_out;
    int volume;
};

KERNEL(list_positions, ListPositionsArguments, 256) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= a.n) return;
    a.position[i] = (int)a.order[i];
    a.slot[i] = (short)slot_of(a.offsets, a.volume, a.order[i]);
    begin_rows(a.rows, i, a.n, a.n_out, a.row_offsets);
}
