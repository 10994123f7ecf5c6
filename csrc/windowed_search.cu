// Neighbour tables of many maps in one launch, by searching windows instead of the whole array.
//
// Outputs are sorted, so for one (x, y) group of slots the wanted positions only move forwards. A
// warp takes 32 consecutive outputs at a time, loads the stretch of source keys that their queries
// can meet into shared memory, and finds every query there. Only the queries of the first output of
// a block are searched for in the whole array, by a launch of its own.

#include "common.cuh"

#define MAX_TASKS 16
#define THREADS 288
#define WARPS 9     // a group of K = 3 each
#ifndef WINDOW
#define WINDOW 64   // source keys a warp holds; beyond that it searches memory
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
    u32* starts;           // [groups, blocks] where the first window of a block begins
    i64 first_block;
    i64 blocks;
    i64 first_probe_block;
    int size[3];
    int words;
    int chunks;            // of 32 outputs, that a block takes
    int batch;             // groups that a block holds at once
    int fill;              // whether rows beyond the outputs are written as empty
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

// Where the queries of every block's first output lie: the only search through all keys, a thread a
// block and group. Neighbouring threads take neighbouring blocks, so they walk the same way down.
KERNEL(first_windows, SearchArguments, 256) {
    int number = 0;
    while (number + 1 < a.n && (i64)blockIdx.x >= a.tasks[number + 1].first_probe_block) ++number;
    const SearchTask& task = a.tasks[number];
    i64 index = ((i64)blockIdx.x - task.first_probe_block) * blockDim.x + threadIdx.x;
    if (index >= task.blocks * task.size[0] * task.size[1]) return;
    i64 n_out = task.target_count ? (i64)*task.target_count : task.target_rows;
    u32 n_in = task.source_count ? *task.source_count : (u32)task.source_rows;
    int group = (int)(index / task.blocks);
    i64 row = (index - group * task.blocks) * task.chunks * WARP;
    if (row >= n_out) return;
    int x = group / task.size[1], y = group - x * task.size[1];
    i64 query = __ldg(task.target + row) + task.delta + x * task.step[0] + y * task.step[1];
    task.starts[index] = quarter_search(task.source, n_in, query);
}

// Where a lane's results go: its row of the tile and of the masks, at one group of slots.
struct Place {
    int* out;
    u32* masks;
    u32* counts;  // of the block, or null
    int slot;     // the group's first
};

// Local steps of z-delta search (Spira, section 5.2), over the existing keys instead of the wanted
// ones: the keys from the first slot's position on, as far as the last slot reaches.
__device__ __forceinline__ void take_hits(
    const i64* keys, u32 p, u32 limit, u32 base, i64 query, u32 reach, u32 step, float inverse, const Place& place) {
    u32 bits = 0;
    int word = place.slot / 31, bit = place.slot % 31;
    for (; p < limit; ++p) {
        u64 distance = (u64)(keys[p] - query);
        if (distance > reach) break;
        int z = (int)((float)(u32)distance * inverse + 0.5f);
        if ((u32)z * step != (u32)distance) continue;  // between two slots of a dilated kernel
        place.out[z] = (int)(base + p);
        if (place.counts) atomicAdd(&place.counts[place.slot + z], 1u);
        int at = bit + z;
        if (at < 31)
            bits |= 1u << at;
        else
            atomicOr(&place.masks[word + at / 31], 1u << (at % 31));
    }
    if (bits) atomicOr(&place.masks[word], bits);
}

// Rows of outputs that are not there: no neighbours.
__device__ __forceinline__ void write_empty(const SearchTask& task, i64 first, i64 end) {
    const int volume = task.size[0] * task.size[1] * task.size[2];
    for (i64 w = first * volume + threadIdx.x; w < end * volume; w += blockDim.x) task.table[w] = -1;
    if (!task.masks) return;
    for (i64 w = first * task.words + threadIdx.x; w < end * task.words; w += blockDim.x) task.masks[w] = 0;
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
    if (task.fill) write_empty(task, max(n_out, first_row), min(task.target_rows, first_row + rows));
    if (first_row >= n_out) return;
    int here = (int)min((i64)rows, n_out - first_row);

    i64* window = (i64*)bytes + warp_index() * WINDOW;
    int* tile = (int*)(bytes + sizeof(i64) * WARPS * WINDOW);  // [rows, slots of the batch]
    u32* masks = (u32*)(tile + rows * task.batch * size_z);    // [rows, words]
    u32* counts = masks + rows * task.words;                   // [K]
    for (int k = threadIdx.x; k < rows * task.words; k += blockDim.x) masks[k] = 0;
    for (int k = threadIdx.x; k < volume; k += blockDim.x) counts[k] = 0;
    u32 step = (u32)task.step[2], reach_z = (u32)(size_z - 1) * step;
    float inverse = 1.0f / (float)step;
    for (int first_group = 0; first_group < groups; first_group += task.batch) {
        int batch = min(task.batch, groups - first_group), slots = batch * size_z;
        int4* empty = (int4*)tile;  // rows are a multiple of 32, so the tile is one of 16 bytes
        for (int w = threadIdx.x; w < rows * slots / 4; w += blockDim.x) empty[w] = {-1, -1, -1, -1};
        __syncthreads();
        for (int group = warp_index(); group < batch; group += WARPS) {
            u32 low = __ldg(task.starts + (first_group + group) * task.blocks + block);
            int x = (first_group + group) / task.size[1], y = first_group + group - x * task.size[1];
            i64 shift = task.delta + x * task.step[0] + y * task.step[1];
            for (int chunk = 0; chunk * WARP < here; ++chunk) {
                int last_lane = min(WARP, here - chunk * WARP) - 1;
                int row = chunk * WARP + lane_index();
                bool valid = lane_index() <= last_lane;
                i64 query = __ldg(task.target + first_row + (valid ? row : here - 1)) + shift;
                i64 last = __shfl_sync(FULL_MASK, query, WARP - 1) + reach_z;

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
                } while (end <= last && loaded < WINDOW);
                __syncwarp();

                Place place = {
                    tile + row * slots + group * size_z,
                    masks + row * task.words,
                    task.counts ? counts : nullptr,
                    (first_group + group) * size_z,
                };
                u32 anchor;  // position of the first slot's query, or where it would be
                if (end > last) {  // every position wanted lies in the window, before its last key
                    u32 p = 0;
                    for (int half = loaded >> 1; half > 0; half >>= 1)
                        if (window[p + half - 1] < query) p += half;
                    anchor = low + p;
                    if (valid) take_hits(window, p, (u32)loaded, low, query, reach_z, step, inverse, place);
                } else {  // a jump in density: search memory between the first and the last query
                    u32 high = low + quarter_search(task.source + low, n_in - low, last + 1);
                    anchor = low + (u32)lower_bound(task.source + low, (i64)(high - low), query);
                    if (valid) take_hits(task.source, anchor, high, 0, query, reach_z, step, inverse, place);
                }
                low = __shfl_sync(FULL_MASK, anchor, WARP - 1);  // the next outputs' queries begin here
                __syncwarp();  // every lane has read the window before it is filled again
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
