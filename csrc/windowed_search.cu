// Neighbour tables of many maps in one launch, by searching windows instead of the whole array.
//
// Outputs are sorted, so for one (x, y) group of slots the wanted positions only move forwards. A
// warp takes 32 consecutive outputs, loads the stretch of source keys that their queries can meet
// into shared memory, and finds every query there. Only the first stretch of a group is looked for
// in the whole array, by 32 lanes at once. As in Spira's z-delta search (section 5.2) the slots of a
// group follow the first one by local steps.

#include "common.cuh"

#define MAX_TASKS 16
#define WARPS 8
#define WINDOW 256  // source keys a warp holds; beyond that it searches memory

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

// First of `n` keys not less than `query`, found by a warp together: each round leaves a 33rd.
__device__ __forceinline__ u32 warp_lower_bound(const i64* keys, u32 low, u32 high, i64 query) {
    u32 lane = lane_index();
    while (high - low > WARP) {
        u64 span = high - low;
        u32 probe = low + (u32)(span * (lane + 1) / 33);
        u32 below = __popc(__ballot_sync(FULL_MASK, __ldg(keys + probe) < query));
        u32 start = low;
        if (below > 0) low = start + (u32)(span * below / 33) + 1;
        if (below < WARP) high = start + (u32)(span * (below + 1) / 33);
    }
    u32 probe = low + lane;
    return low + __popc(__ballot_sync(FULL_MASK, probe < high && __ldg(keys + probe) < query));
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
    for (int z = 0; z < size_z; ++z, wanted += step) {
        while (p < limit && keys[p] < wanted) ++p;
        bool hit = tile.valid && p < limit && keys[p] == wanted;
        if (tile.valid) tile.out[z] = hit ? (int)(base + p) : -1;
        int slot = tile.slot + z;
        if (hit && tile.masks) atomicOr(&tile.masks[slot / 31], 1u << (slot % 31));
        if (tile.counts) {
            u32 hits = __ballot_sync(FULL_MASK, hit);
            if (hits && lane_index() == 0) atomicAdd(&tile.counts[slot], (u32)__popc(hits));
        }
    }
}

KERNEL(windowed_search, SearchArguments, 256) {
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
    for (int k = threadIdx.x; k < rows * task.words; k += blockDim.x) masks[k] = 0;
    for (int k = threadIdx.x; k < volume; k += blockDim.x) counts[k] = 0;
    __syncthreads();

    for (int first_group = 0; first_group < groups; first_group += task.batch) {
        int batch = min(task.batch, groups - first_group), slots = batch * size_z;
        int units = batch * task.chunks;
        int previous = -1;  // group whose window `low` belongs to
        u32 low = 0;
        for (int unit = warp_index() * units / WARPS; unit < (warp_index() + 1) * units / WARPS; ++unit) {
            int group = unit / task.chunks, chunk = unit % task.chunks;
            if (chunk * WARP >= here) continue;
            int x = (first_group + group) / task.size[1], y = (first_group + group) % task.size[1];
            int last_lane = min(WARP, here - chunk * WARP) - 1;
            int row = chunk * WARP + min(lane_index(), last_lane);
            bool valid = lane_index() <= last_lane;
            i64 query = __ldg(task.target + first_row + row) + task.delta + x * task.step[0] + y * task.step[1];
            i64 reach = __shfl_sync(FULL_MASK, query, last_lane) + (size_z - 1) * task.step[2];
            if (group != previous) low = warp_lower_bound(task.source, 0, n_in, __shfl_sync(FULL_MASK, query, 0));
            previous = group;

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
                u32 high = warp_lower_bound(task.source, low, n_in, reach + 1);
                anchor = low + (u32)lower_bound(task.source + low, (i64)(high - low), query);
                walk(task.source, anchor, high, 0, query, task.step[2], size_z, mine);
            }
            low = __shfl_sync(FULL_MASK, anchor, last_lane);  // the next outputs' queries begin here
            __syncwarp();
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
