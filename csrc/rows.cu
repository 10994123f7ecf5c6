// Where the triplets of every row stand in the pairs of a map, which are listed by slot: of a table
// without a sort, else by a stable sort by row, which keeps slots ascending.
//
// The place of a pair is that of its chunk (`scan_counts` of pairs.cu) and the rows before it there.

#include "radix.cuh"

#define THREADS 256
#define WARPS (THREADS / WARP)
#define MOST_SLOTS 128
#define STAGED_INTS 4160  // 32 rows of 130, or 128 rows of a 3 x 3 x 3 kernel

struct TableRowsArguments {
    const int* table;      // [n, volume]
    const int* starts;     // [volume, chunks] pairs of a slot in the chunks before
    const i64* offsets;    // [volume + 1] first pair of every slot
    int* position;         // [T] in the pairs, by row, then slot
    short* slot;           // [T]
    i64* row_offsets;      // [n + 1]
    int* input_position;   // [T] the same by input row of a symmetric map, or null
    short* input_slot;     // [T]
    i64 n, chunks;
    int volume, rows;      // rows of a chunk, a multiple of 32
};

// A block a chunk of rows. Inputs of a slot of a symmetric map ascend where its outputs do: the
// triplets of input row i are those of output row i read backwards, each at the same place of the
// mirrored slot.
KERNEL(list_table_rows, TableRowsArguments, THREADS) {
    __shared__ int tile[STAGED_INTS];
    __shared__ int next[MOST_SLOTS];    // of each slot, in the pairs
    __shared__ int mirror[MOST_SLOTS];  // from the pairs of a slot to those of the mirrored one
    __shared__ int row_at[THREADS + 1];  // where a row's triplets begin, counted from the tile's
    __shared__ u32 before;
    const int volume = a.volume, pitch = volume | 1;  // odd: a column lies in 32 banks
    const int height = min(THREADS, STAGED_INTS / pitch / WARP * WARP);
    const i64 chunk = blockIdx.x, first_row = chunk * a.rows, end = min(first_row + a.rows, a.n);
    if (threadIdx.x == 0) before = 0;
    __syncthreads();
    if (threadIdx.x < volume) {
        const int slot = threadIdx.x, start = a.starts[slot * a.chunks + chunk];
        next[slot] = (int)a.offsets[slot] + start;
        mirror[slot] = (int)(a.offsets[volume - 1 - slot] - a.offsets[slot]);
        atomicAdd(&before, (u32)start);  // all triplets of the rows before
    }
    __syncthreads();
    i64 base = before;
    for (i64 top = first_row; top < end; top += height) {
        const int rows = (int)min((i64)height, end - top);
        for (int local = warp_index(); local < rows; local += WARPS) {
            const int* row = a.table + (top + local) * volume;
            for (int i = lane_index(); i < volume; i += WARP) tile[local * pitch + i] = row[i];
        }
        __syncthreads();
        // inputs become places in the pairs
        for (int slot = warp_index(); slot < volume; slot += WARPS) {
            int place = next[slot];
            for (int start = 0; start < rows; start += WARP) {
                const int local = start + lane_index();
                const bool filled = local < rows && tile[local * pitch + slot] >= 0;
                const u32 ballot = __ballot_sync(FULL_MASK, filled);
                if (filled) tile[local * pitch + slot] = place + rank_below(ballot);
                place += __popc(ballot);
            }
            __syncwarp();
            if (lane_index() == 0) next[slot] = place;
        }
        __syncthreads();
        u32 own = 0, all;
        if (threadIdx.x < rows)
            for (int slot = 0; slot < volume; ++slot) own += tile[threadIdx.x * pitch + slot] >= 0;
        const u32 from = block_prefix(own, &all);
        if (threadIdx.x < rows) {
            row_at[threadIdx.x] = (int)from;
            a.row_offsets[top + threadIdx.x] = base + from;
        }
        if (threadIdx.x == 0) row_at[rows] = (int)all;
        __syncthreads();
        for (int local = warp_index(); local < rows; local += WARPS) {
            i64 to = base + row_at[local], back = base + row_at[local + 1] - 1;
            for (int start = 0; start < volume; start += WARP) {
                const int slot = start + lane_index();
                const int place = slot < volume ? tile[local * pitch + slot] : -1;
                const u32 ballot = __ballot_sync(FULL_MASK, place >= 0);
                if (place >= 0) {
                    const int rank = rank_below(ballot);
                    a.position[to + rank] = place;
                    a.slot[to + rank] = (short)slot;
                    if (a.input_position) {
                        a.input_position[back - rank] = place + mirror[slot];
                        a.input_slot[back - rank] = (short)(volume - 1 - slot);
                    }
                }
                to += __popc(ballot);
                back -= __popc(ballot);
            }
        }
        base += all;
        __syncthreads();
    }
    if (threadIdx.x == 0 && end == a.n) a.row_offsets[a.n] = base;
}

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
