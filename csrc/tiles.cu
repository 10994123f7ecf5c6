// Row order and slot lists of tiles, for many maps in one sort.
//
// Rows are sorted by the Gray code of their slot mask, so that neighbours differ in few slots and
// the rows of a tile share most of theirs.

#include "radix.cuh"

#define MAX_TASKS 32
#define GRAY_BITS 27  // of the mask in a sort key; larger masks are folded
#define TILE_ROWS 64

struct MaskTask {
    const int* masks;  // [rows, words]
    int* slots;        // [tiles, K]
    int* counts;       // [tiles]
    i64 rows;
    i64 first_item;    // rows of the maps before
    i64 first_tile;    // tiles of the maps before
    int volume;
    int words;
};

struct MaskKeysArguments {
    u64* keys_a;
    u64* keys_b;
    u32* values_a;
    u32* values_b;
    u32* state;
    i64 items;
    int n;
    int map_bits;
    MaskTask tasks[MAX_TASKS];
};

__device__ __forceinline__ int task_of(const MaskTask* tasks, int n, i64 number, bool by_tile) {
    int task = 0;
    while (task + 1 < n && number >= (by_tile ? tasks[task + 1].first_tile : tasks[task + 1].first_item)) ++task;
    return task;
}

// A bin is set if one of its neighbouring slots is: slot k falls into bin 27 k / K.
__device__ __forceinline__ u32 folded(const int* masks, int words, int volume) {
    if (volume <= GRAY_BITS) return (u32)masks[0];
    u32 bins = 0;
    for (int w = 0; w < words; ++w)
        for (u32 rest = (u32)masks[w]; rest; rest &= rest - 1)
            bins |= 1u << ((w * 31 + __ffs((int)rest) - 1) * GRAY_BITS / volume);
    return bins;
}

__device__ __forceinline__ u32 gray_rank(u32 mask) {
    for (int shift = 1; shift < 32; shift *= 2) mask ^= mask >> shift;
    return mask;
}

struct RowMasksArguments {
    const int* table;  // [rows, K]
    int* masks;        // [rows, words]
    i64 rows;
    int volume;
    int words;
};

// A warp a row: every word is a ballot over 31 slots.
KERNEL(row_masks, RowMasksArguments, 256) {
    i64 row = (i64)blockIdx.x * (blockDim.x / WARP) + warp_index();
    if (row >= a.rows) return;
    for (int w = 0; w < a.words; ++w) {
        int slot = w * 31 + lane_index();
        bool filled = lane_index() < 31 && slot < a.volume && a.table[row * a.volume + slot] >= 0;
        u32 bits = __ballot_sync(FULL_MASK, filled);
        if (lane_index() == 0) a.masks[row * a.words + w] = (int)bits;
    }
}

KERNEL(mask_keys, MaskKeysArguments, 256) {
    __shared__ u32 histogram[MAX_PASSES][RADIX];
    for (int pass = 0; pass < MAX_PASSES; ++pass) histogram[pass][threadIdx.x] = 0;
    __syncthreads();
    int passes = passes_for(GRAY_BITS + a.map_bits);
    u64* keys = in_second_buffer(passes, 0) ? a.keys_b : a.keys_a;
    u32* values = in_second_buffer(passes, 0) ? a.values_b : a.values_a;
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 base = (i64)blockIdx.x * blockDim.x; base < a.items; base += step) {
        i64 item = base + threadIdx.x;
        bool valid = item < a.items;
        u64 key = 0;
        if (valid) {
            int number = task_of(a.tasks, a.n, item, false);
            const MaskTask& task = a.tasks[number];
            i64 row = item - task.first_item;
            u32 rank = gray_rank(folded(task.masks + row * task.words, task.words, task.volume));
            key = ((u64)number << GRAY_BITS) | rank;
            keys[item] = key;
            values[item] = (u32)row;
        }
        count_digits(histogram, key, valid, passes);
    }
    finish_histogram(histogram, a.state, passes, (u32)a.items);
}

struct TileSlotsArguments {
    const u32* order;  // [items] rows in the order of the sort
    i64 tiles;
    int n;
    MaskTask tasks[MAX_TASKS];
};

// A warp a tile: OR of its rows' masks, and the set bits listed.
KERNEL(tile_slots, TileSlotsArguments, 256) {
    i64 tile = (i64)blockIdx.x * (blockDim.x / WARP) + warp_index();
    if (tile >= a.tiles) return;
    const MaskTask& task = a.tasks[task_of(a.tasks, a.n, tile, true)];
    i64 place = (tile - task.first_tile) * TILE_ROWS;
    i64 rows[2];
    bool valid[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        i64 p = place + half * WARP + lane_index();
        valid[half] = p < task.rows;
        rows[half] = valid[half] ? (i64)a.order[task.first_item + p] : 0;
    }
    int count = 0;
    int* slots = task.slots + (tile - task.first_tile) * task.volume;
    for (int w = 0; w < task.words; ++w) {
        u32 bits = 0;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (valid[half]) bits |= (u32)task.masks[rows[half] * task.words + w];
        bits = __reduce_or_sync(FULL_MASK, bits);
        if (bits >> lane_index() & 1u) slots[count + rank_below(bits)] = w * 31 + lane_index();
        count += __popc(bits);
    }
    if (lane_index() == 0) task.counts[tile - task.first_tile] = count;
}
