// Tiles of rows with the ranges of inputs that every slot sums up, from triplets by output row; what
// is stored, pcnn/geometry/row_lists.py says. Many maps in one sort of rows and one of tiles.

#define OWN_BITS 12  // as in pcnn/geometry/row_lists.py
#define FOLDED_BITS 12
#include "gray_order.cuh"
#include "radix.cuh"

#define MAX_TASKS 24
#define LEVEL_BITS 4    // of the level of a row's fan-in
#define LAST_LEVEL 15   // rows without an input
#define LENGTH_BITS 24  // of the number of a tile's steps in a sort key
#define TILE_ROWS 128

struct ListTask {
    const int* row_inputs;   // [T] by row, then slot
    const int* row_slots;    // [T] ascending within a row
    const i64* row_offsets;  // [rows + 1]
    int* bits;               // [2, volume] of the slots with an input, and with two, in a mask
    int* out;                // [tiles, TILE_ROWS]
    int* starts;             // [tiles, volume + 1, TILE_ROWS]
    int* tile_steps;         // [tiles + 1]
    int* step_slots;         // [stored]
    int* step_rows;          // [stored, TILE_ROWS]
    int* most;               // [tiles, volume] largest fan-in of a slot, in the order of the rows
    i64 rows;
    i64 first_item;          // rows of the tasks before
    i64 first_tile;          // tiles of the tasks before
    i64 stored;              // steps that there is room for
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

// Call `visit(slot, inputs)` for every slot that a row fills, ascending.
template <typename Visit>
__device__ __forceinline__ void visit_slots(const ListTask& task, i64 row, Visit visit) {
    const i64 end = task.row_offsets[row + 1];
    for (i64 cursor = task.row_offsets[row]; cursor < end;) {
        const int slot = task.row_slots[cursor];
        int inputs = 1;
        while (++cursor < end && task.row_slots[cursor] == slot) ++inputs;
        visit(slot, inputs);
    }
}

// A block a map: how often rows fill a slot, and fill it twice, and so the bits of a mask.
KERNEL(slot_bits, ListArguments, 256) {
    DYNAMIC_SHARED(shared);
    int* counts = (int*)shared;  // [2, volume]
    const ListTask& task = a.tasks[blockIdx.x];
    for (int i = threadIdx.x; i < 2 * task.volume; i += 256) counts[i] = 0;
    __syncthreads();
    const i64 step = sampling_step(task.rows);
    for (i64 row = threadIdx.x * step; row < task.rows; row += 256 * step)
        visit_slots(task, row, [&](int slot, int inputs) {
            atomicAdd(&counts[slot], 1);
            if (inputs > 1) atomicAdd(&counts[task.volume + slot], 1);
        });
    __syncthreads();
    assign_bits(counts, 2 * task.volume, task.bits);
}

// Level of the fan-in, and the Gray rank of what a row fills.
__device__ __forceinline__ u64 row_key(const ListTask& task, i64 row) {
    u32 mask = 0;
    int most = 0;
    visit_slots(task, row, [&](int slot, int inputs) {
        mask |= 1u << task.bits[slot];
        if (inputs > 1) mask |= 1u << task.bits[task.volume + slot];
        most = max(most, inputs);
    });
    if (!most) return (u64)LAST_LEVEL << GRAY_BITS;
    const int level = most <= 4 ? most : min(bits_for((u64)most) + 2, LAST_LEVEL - 1);
    return (u64)level << GRAY_BITS | gray_rank(mask);
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
    if (place < task.rows)
        visit_slots(task, a.order[task.first_item + place], [&](int slot, int inputs) {
            if (most[slot] < inputs) atomicMax(&most[slot], inputs);
        });
    __syncthreads();
    u32 steps = 0;
    for (int slot = threadIdx.x; slot < task.volume; slot += TILE_ROWS) {
        task.most[own * task.volume + slot] = most[slot];
        steps += (u32)most[slot];
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

// A block a stored tile: its rows, where the inputs of every slot begin, its steps, and what these
// gather if there is room for all of them.
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

    i64 step = task.tile_steps[stored];
    if (task.tile_steps[stored + 1] > task.stored) return;
    if (row >= 0) cursor = task.row_offsets[row];
    next = cursor < end ? task.row_slots[cursor] : -1;
    for (int slot = 0; slot < task.volume; ++slot)
        for (int left = task.most[own * task.volume + slot]; left; --left, ++step) {
            int input = -1;
            if (next == slot) {
                input = task.row_inputs[cursor];
                next = ++cursor < end ? task.row_slots[cursor] : -1;
            }
            task.step_rows[step * TILE_ROWS + threadIdx.x] = input;
            if (threadIdx.x == 0) task.step_slots[step] = slot;
        }
}
