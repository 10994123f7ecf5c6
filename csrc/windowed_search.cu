// Neighbour tables of many maps in one launch, by searching windows instead of the whole array.
//
// Outputs are sorted, so for one (x, y) group of slots the wanted positions only move forwards. A
// warp takes 32 consecutive outputs at a time, loads the stretch of source keys that their queries can meet
// into shared memory, and finds every query there. Only where a block's
// first output's queries lie is looked for in the whole array, once a group. As in Spira's z-delta search (section 5.2) the slots of a
// group follow the first one by local steps.

#include "common.cuh"

#define MAX_TASKS 16
#define THREADS 288
#define WARPS 9     // a group of K = 3 each
#ifndef WINDOW
#define WINDOW 256  // source keys a warp holds; beyond that it searches memory
#endif

struct SearchTask {
    const i64* source;     // [N_in] sorted keys
    const u32* source_count;  // N_in on the device, or null: then source_rows
    const i64* target;     // [N_out]
    const u32* target_count;
    int* table;            // [N_out, K]
    int* masks;            // [N_out, words], or null
    u32* counts;           // [K] triplets of every slot, zeroed before, or null
    i64 source_rows;
    i64 target_rows;
    i64 delta;             // key of slot 0 minus key of the output
    i64 step[3];           // key difference of neighbouring slots along x, y, z
    i64 first_block;
    int size[3];
    int words;
    int chunks;            // of 32 outputs, that a block takes
    int batch;             // groups that a block holds at once
};

struct SearchArguments {
    SearchTask tasks[MAX_TASKS];
    int n;
};

// First of `n` keys not less than `query`, each lane its own, three keys a step.
__device__ __forceinline__ u32 quarter_search(const i64* keys, u32 n, i64 query) {
    u32 low = 0, high = n;
    while (high - low > 3) {
        u32 part = (high - low) >> 2;
        u32 one = low + part, two = one + part, three = two + part;
        bool after_one = __ldg(keys + one) < query, after_two = __ldg(keys + two) < query;
        bool after_three = __ldg(keys + three) < query;
        low = after_three ? three + 1 : after_two ? two + 1 : after_one ? one + 1 : low;
        high = !after_one ? one : !after_two ? two : !after_three ? three : high;
    }
    while (low < high && __ldg(keys + low) < query) ++low;
    return low;
}

// What a warp notes down while it walks along the slots of a group.
struct Tile {
    int* out;      // this lane's row of the table, at the group's first slot
    u32* masks;    // this lane's row of masks, or null
    u32* counts;   // of the block, or null
    int slot;      // the group's first
    bool valid;    // whether the lane has a row
};

// Local steps of z-delta search: from the first slot's position forwards, one slot after another.
__device__ __forceinline__ void walk(
    const i64* keys, u32 p, u32 limit, u32 base, i64 wanted, i64 step, int size_z, const Tile& tile) {
    u32 bits = 0;
    int word = tile.slot / 31, bit = tile.slot % 31;
    for (int z = 0; z < size_z; ++z, wanted += step) {
        while (p < limit && keys[p] < wanted) ++p;
        bool hit = tile.valid && p < limit && keys[p] == wanted;
        if (tile.valid) tile.out[z] = hit ? (int)(base + p) : -1;
        if (hit) bits |= 1u << bit;
        if (++bit == 31 || z == size_z - 1) {
            if (bits && tile.masks) atomicOr(&tile.masks[word], bits);
            bits = 0;
            bit = 0;
            ++word;
        }
        if (tile.counts) {
            u32 hits = __ballot_sync(FULL_MASK, hit);
            if (hits && lane_index() == 0) atomicAdd(&tile.counts[tile.slot + z], (u32)__popc(hits));
        }
    }
}

KERNEL(windowed_search, SearchArguments, THREADS) {
    DYNAMIC_SHARED(bytes);
    int number = 0;
    while (number + 1 < a.n && (i64)blockIdx.x >= a.tasks[number + 1].first_block) ++number;
    const SearchTask& task = a.tasks[number];
    i64 block = (i64)blockIdx.x - task.first_block;
    i64 n_out = task.target_count ? (i64)*task.target_count : task.target_rows;
    u32 n_in = task.source_count ? *task.source_count : (u32)task.source_rows;
    int rows = task.chunks * WARP, size_z = task.size[2];
    int volume = task.size[0] * task.size[1] * size_z, groups = task.size[0] * task.size[1];
    i64 first_row = block * rows;
    if (first_row >= n_out) return;
    int here = (int)min((i64)rows, n_out - first_row);

    i64* window = (i64*)bytes + warp_index() * WINDOW;
    int* tile = (int*)(bytes + sizeof(i64) * WARPS * WINDOW);  // [rows, slots of the batch]
    u32* masks = (u32*)(tile + rows * task.batch * size_z);    // [rows, words]
    u32* counts = masks + rows * task.words;                   // [K]
    u32* starts = counts + volume;                             // [groups]
    for (int k = threadIdx.x; k < rows * task.words; k += blockDim.x) masks[k] = 0;
    for (int k = threadIdx.x; k < volume; k += blockDim.x) counts[k] = 0;
    // where the first output's queries lie: the only search through all keys, a lane a group
    i64 first_key = __ldg(task.target + first_row) + task.delta;
    for (int g = threadIdx.x; g < groups; g += blockDim.x)
        starts[g] = quarter_search(
            task.source, n_in, first_key + g / task.size[1] * task.step[0] + g % task.size[1] * task.step[1]);
    __syncthreads();

    for (int first_group = 0; first_group < groups; first_group += task.batch) {
        int batch = min(task.batch, groups - first_group), slots = batch * size_z;
        for (int group = warp_index(); group < batch; group += WARPS) {
          u32 low = starts[first_group + group];
          i64 shift = task.delta + (first_group + group) / task.size[1] * task.step[0] +
                      (first_group + group) % task.size[1] * task.step[1];
          for (int chunk = 0; chunk * WARP < here; ++chunk) {
            int last_lane = min(WARP, here - chunk * WARP) - 1;
            int row = chunk * WARP + min(lane_index(), last_lane);
            bool valid = lane_index() <= last_lane;
            i64 query = __ldg(task.target + first_row + row) + shift;
            i64 reach = __shfl_sync(FULL_MASK, query, last_lane) + (size_z - 1) * task.step[2];

            int loaded = 0;
            i64 end;
            do {
                u32 p = low + loaded + lane_index();
                i64 one = p < n_in ? __ldg(task.source + p) : 0x7fffffffffffffffll;
                i64 two = p + WARP < n_in ? __ldg(task.source + p + WARP) : 0x7fffffffffffffffll;
                window[loaded + lane_index()] = one;
                window[loaded + WARP + lane_index()] = two;
                loaded += 2 * WARP;
                end = __shfl_sync(FULL_MASK, two, WARP - 1);
            } while (end <= reach && loaded < WINDOW);
            __syncwarp();

            Tile mine = {
                tile + row * slots + group * size_z,
                task.masks ? masks + row * task.words : nullptr,
                task.counts ? counts : nullptr,
                (first_group + group) * size_z,
                valid,
            };
            u32 anchor;  // position of the first slot's query, or where it would be
            if (end > reach) {  // every position wanted lies in the window, before its last key
                u32 p = 0;
                for (int step = loaded > 128 ? 128 : loaded > 64 ? 64 : 32; step > 0; step >>= 1)
                    if (window[p + step - 1] < query) p += step;
                anchor = low + p;
                walk(window, p, (u32)loaded, low, query, task.step[2], size_z, mine);
            } else {  // a jump in density: search memory between the first and the last query
                u32 high = low + quarter_search(task.source + low, n_in - low, reach + 1);
                anchor = low + (u32)lower_bound(task.source + low, (i64)(high - low), query);
                walk(task.source, anchor, high, 0, query, task.step[2], size_z, mine);
            }
            low = __shfl_sync(FULL_MASK, anchor, last_lane);  // the next outputs' queries begin here
            __syncwarp();
          }
        }
        __syncthreads();
        int* table = task.table + first_row * volume;
        if (slots == volume) {  // whole rows: one stretch of memory, 16 bytes a store
            int words = here * volume;
            const int4* from = (const int4*)tile;
            int4* to = (int4*)table;
            for (int w = threadIdx.x; w < words / 4; w += blockDim.x) to[w] = from[w];
            for (int w = words / 4 * 4 + threadIdx.x; w < words; w += blockDim.x) table[w] = tile[w];
        } else {
            for (int w = threadIdx.x; w < here * slots; w += blockDim.x)
                table[(i64)(w / slots) * volume + first_group * size_z + w % slots] = tile[w];
        }
        __syncthreads();
    }
    if (task.masks)
        for (int w = threadIdx.x; w < here * task.words; w += blockDim.x)
            task.masks[first_row * task.words + w] = (int)masks[w];
    if (task.counts)
        for (int k = threadIdx.x; k < volume; k += blockDim.x)
            if (counts[k]) atomicAdd(&task.counts[k], counts[k]);
}
