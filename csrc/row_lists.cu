// Tiles of rows with the ranges of inputs that every slot sums up, from triplets by output row; what
// is stored, pcnn/geometry/row_lists.py says. Many maps in one sort of rows and one of tiles.

#include "radix.cuh"

#define MAX_TASKS 32
#define GRAY_BITS 27    // of the slot mask in a sort key; larger masks are folded
#define LEVEL_BITS 5    // of the level of a row's fan-in
#define LAST_LEVEL 31   // rows without an input
#define STEP_INPUTS 2   // inputs of a slot that one step gathers
#define LENGTH_BITS 24  // of the number of a tile's steps in a sort key
#define TILE_ROWS 128

struct ListTask {
    const int* row_slots;    // [T] by row, ascending within a row
    const i64* row_offsets;  // [rows + 1]
    int* out;                // [tiles, TILE_ROWS]
    int* starts;             // [tiles, volume + 1, TILE_ROWS]
    int* tile_steps;         // [tiles + 1]
    int2* steps;             // slot and rank of the first input
    int* most;               // [tiles, volume] largest fan-in of a slot, in the order of the rows
    i64 rows;
    i64 first_item;          // rows of the tasks before
    i64 first_tile;          // tiles of the tasks before
    int tiles;
    int volume;
};

struct ListArguments {
    SortBuffers sort;       // that the kernel prepares
    const u32* order;       // rows, then tiles, in the order of their sort
    const u32* tile_order;
    u32* lengths;           // [tiles] steps of every tile, in the order of the rows
    i64 items;              // rows or tiles of all tasks
    int n;
    int passes;
    ListTask tasks[MAX_TASKS];
};

__device__ __forceinline__ int task_of(const ListArguments& a, i64 number, bool by_tile) {
    int task = 0;
    while (task + 1 < a.n && number >= (by_tile ? a.tasks[task + 1].first_tile : a.tasks[task + 1].first_item)) ++task;
    return task;
}

__device__ __forceinline__ u32 gray_rank(u32 mask) {
    for (int shift = 1; shift < 32; shift *= 2) mask ^= mask >> shift;
    return mask;
}

// Level of the fan-in, and the Gray rank of the slot mask: slot k of more than 27 falls into bin
// 27 k / K.
__device__ __forceinline__ u64 row_key(const ListTask& task, i64 row) {
    const i64 end = task.row_offsets[row + 1];
    i64 cursor = task.row_offsets[row];
    if (cursor == end) return (u64)LAST_LEVEL << GRAY_BITS;
    u32 bins = 0;
    int most = 0, run = 0, last = -1;
    for (; cursor < end; ++cursor) {
        const int slot = task.row_slots[cursor];
        run = slot == last ? run + 1 : 1;
        last = slot;
        most = max(most, run);
        bins |= 1u << (task.volume <= GRAY_BITS ? slot : (int)((i64)slot * GRAY_BITS / task.volume));
    }
    const int level = bits_for((u64)(most + STEP_INPUTS - 1) / STEP_INPUTS);
    return (u64)level << GRAY_BITS | gray_rank(bins);
}

// Sort keys of all rows, and their digits counted.
KERNEL(row_keys, ListArguments, 256) {
    write_sort_keys(a.sort, a.items, a.passes, [&](i64 item, u32* value) {
        const int number = task_of(a, item, false);
        const i64 row = item - a.tasks[number].first_item;
        *value = (u32)row;
        return (u64)number << (GRAY_BITS + LEVEL_BITS) | row_key(a.tasks[number], row);
    });
}

// A block a tile: the largest fan-in of every slot, and the steps they take.
KERNEL(tile_lengths, ListArguments, TILE_ROWS) {
    DYNAMIC_SHARED(shared);
    int* most = (int*)shared;  // [volume]
    __shared__ u32 sums[TILE_ROWS / WARP];
    const i64 tile = blockIdx.x;
    const ListTask& task = a.tasks[task_of(a, tile, true)];
    const i64 own = tile - task.first_tile, place = own * TILE_ROWS + threadIdx.x;
    for (int slot = threadIdx.x; slot < task.volume; slot += TILE_ROWS) most[slot] = 0;
    __syncthreads();
    if (place < task.rows) {
        const i64 row = a.order[task.first_item + place], end = task.row_offsets[row + 1];
        for (i64 cursor = task.row_offsets[row]; cursor < end;) {
            const int slot = task.row_slots[cursor];
            int run = 1;
            while (++cursor < end && task.row_slots[cursor] == slot) ++run;
            if (most[slot] < run) atomicMax(&most[slot], run);
        }
    }
    __syncthreads();
    u32 steps = 0;
    for (int slot = threadIdx.x; slot < task.volume; slot += TILE_ROWS) {
        task.most[own * task.volume + slot] = most[slot];
        steps += (u32)(most[slot] + STEP_INPUTS - 1) / STEP_INPUTS;
    }
    steps = __reduce_add_sync(FULL_MASK, steps);
    if (lane_index() == 0) sums[warp_index()] = steps;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < TILE_ROWS / WARP; ++w) steps += sums[w];
    a.lengths[tile] = steps;
}

// Sort keys of all tiles: those of more steps first.
KERNEL(tile_keys, ListArguments, 256) {
    write_sort_keys(a.sort, a.items, a.passes, [&](i64 tile, u32* value) {
        const u32 most = (1u << LENGTH_BITS) - 1u;
        const int number = task_of(a, tile, true);
        *value = (u32)(tile - a.tasks[number].first_tile);
        return (u64)number << LENGTH_BITS | (most - min(a.lengths[tile], most));
    });
}

// A block a map: where the steps of every stored tile begin.
KERNEL(first_steps, ListArguments, 256) {
    const ListTask& task = a.tasks[blockIdx.x];
    u32 carry = 0;
    for (int base = 0; base < task.tiles; base += 256) {
        const int stored = base + (int)threadIdx.x;
        u32 own = 0, all;
        if (stored < task.tiles) own = a.lengths[task.first_tile + a.tile_order[task.first_tile + stored]];
        const u32 before = block_prefix(own, &all);
        if (stored < task.tiles) task.tile_steps[stored] = (int)(carry + before);
        carry += all;
    }
    if (threadIdx.x == 0) task.tile_steps[task.tiles] = (int)carry;
}

// A block a stored tile: its rows, where the inputs of every slot begin, and its steps.
KERNEL(tile_ranges, ListArguments, TILE_ROWS) {
    const i64 number = blockIdx.x;
    const ListTask& task = a.tasks[task_of(a, number, true)];
    const i64 stored = number - task.first_tile, own = a.tile_order[number];
    const i64 place = own * TILE_ROWS + threadIdx.x;
    const int row = place < task.rows ? (int)a.order[task.first_item + place] : -1;
    task.out[stored * TILE_ROWS + threadIdx.x] = row;
    int* starts = task.starts + stored * (task.volume + 1) * TILE_ROWS + threadIdx.x;
    i64 cursor = 0, end = 0;
    if (row >= 0) cursor = task.row_offsets[row], end = task.row_offsets[row + 1];
    int next = cursor < end ? task.row_slots[cursor] : -1;
    for (int slot = 0; slot < task.volume; ++slot) {
        starts[(i64)slot * TILE_ROWS] = (int)cursor;
        while (next == slot) next = ++cursor < end ? task.row_slots[cursor] : -1;
    }
    starts[(i64)task.volume * TILE_ROWS] = (int)end;

    if (warp_index()) return;
    int2* steps = task.steps + task.tile_steps[stored];
    for (int first = 0; first < task.volume; first += WARP) {
        const int slot = first + lane_index();
        const int most = slot < task.volume ? task.most[own * task.volume + slot] : 0;
        const int count = (most + STEP_INPUTS - 1) / STEP_INPUTS;
        int sum = count;  // inclusive, of the warp
#pragma unroll
        for (int lanes = 1; lanes < WARP; lanes <<= 1) {
            const int left = __shfl_up_sync(FULL_MASK, sum, lanes);
            if (lane_index() >= lanes) sum += left;
        }
        for (int i = 0; i < count; ++i) {
            int2 step;
            step.x = slot, step.y = i * STEP_INPUTS;
            steps[sum - count + i] = step;
        }
        steps += __shfl_sync(FULL_MASK, sum, WARP - 1);
    }
}
