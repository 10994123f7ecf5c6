// Where the triplets of every row stand in the pairs of a map, which are listed by slot: by a stable
// sort by row, which keeps slots ascending.

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
    const int* in_index;  // [n] by slot, or null: then positions are listed
    const i64* counts;    // [volume] triplets of every slot
    int* index;           // [n] by row
    int* slots;           // [n]
    i64* row_offsets;     // [n_out + 1]
    i64 n, n_out;
};

KERNEL(list_rows, ListRowsArguments, 256) {
    const i64 i = (i64)blockIdx.x * 256 + threadIdx.x;
    if (i >= a.n) return;
    const i64 position = a.order[i];
    a.index[i] = a.in_index ? a.in_index[position] : (int)position;
    int slot = 0;
    for (i64 end = a.counts[0]; end <= position; end += a.counts[slot]) ++slot;
    a.slots[i] = slot;
    // where the rows begin that start with this triplet, those without any too
    const i64 row = (i64)a.rows[i], before = i ? (i64)a.rows[i - 1] : -1;
    for (i64 r = before + 1; r <= row; ++r) a.row_offsets[r] = i;
    if (i == a.n - 1)
        for (i64 r = row + 1; r <= a.n_out; ++r) a.row_offsets[r] = a.n;
}
