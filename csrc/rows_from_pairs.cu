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
    // the last slot that begins at or before this triplet: empty slots begin with the next one
    a.row_slots[i] = (int)lower_bound(a.offsets + 1, (i64)a.volume, from + 1);
    const i64 row = (i64)a.rows[i], before = i ? (i64)a.rows[i - 1] : -1;
    for (i64 r = before + 1; r <= row; ++r) a.row_offsets[r] = i;  // rows without triplets too
    if (i == a.n - 1)
        for (i64 r = row + 1; r <= a.n_out; ++r) a.row_offsets[r] = a.n;
}
