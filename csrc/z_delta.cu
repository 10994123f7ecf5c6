// Neighbour tables of many maps by z-delta search on packed keys (Spira, sections 5.2 to 5.5).
//
// Sorted keys of equal (x, y) are consecutive and ascend in z. Once the slot of the smallest z is
// found by binary search (the anchor), the others follow by steps forward: K_x K_y searches a row,
// not K_x K_y K_z. A run is a list of slots with one binary search: the K_z slots of equal (x, y),
// or without DELTAS a single slot, the simple search that the paper compares with (section 6.4).
// A block owns `rows` consecutive outputs and a chunk of runs; the lanes of a warp share one run.
//
// variants: DELTAS=1 KEY_BITS=64 | DELTAS=1 KEY_BITS=32 | DELTAS=0 KEY_BITS=64

#include "key_fields.cuh"

#ifndef KEY_BITS
#define KEY_BITS 64
#endif
#ifndef DELTAS
#define DELTAS 1
#endif
#define MAX_TASKS 14
#define SEARCH_THREADS 256

#if KEY_BITS == 64
typedef i64 Key;
#define KEY_MAX 0x7fffffffffffffffll
#else
typedef u32 Key;
#define KEY_MAX 0xffffffffu
#endif

struct SearchTask {
    const Key* source;        // [n_source] sorted, unique
    const Key* target;        // [n_target] sorted
    const int* source_count;  // sites on the device, or null: n_source of them
    const int* target_count;  // the same: n_target, which is what there is room for in any case
    int* table;               // [n_target, volume]
    u32* counts;              // [volume] triplets, zeroed before, or null
    i64 base, step_x, step_y, step_z;  // key of slot (x, y, z) minus the output's, as a sum
    int n_source, n_target;
    int first_block;
    int size_y, size_z, volume;
    int rows, row_shift;           // of a tile: 32 << row_shift
    int runs, chunk_runs, chunks;  // runs in all, of a block, and blocks of a tile
    int fill;                      // rows behind the last site are written as empty
};

struct SearchArguments {
    SearchTask tasks[MAX_TASKS];
    int n;
};

#if KEY_BITS == 32
struct NarrowArguments {
    const i64* keys;  // [n]
    u32* narrow;      // [n]
    i64 n;
    int bias[3];   // 32-bit field minus 64-bit field, of x, y and z
    int shift[2];  // of x and y in a 32-bit key; z has none
};

// 32-bit keys of 64-bit ones whose cloud is 0 and whose coordinates fit: the caller has checked.
KERNEL(narrow_keys, NarrowArguments, 256) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.n) return;
    const i64 key = a.keys[i];
    const u32 x = field_of(key, 1) + (u32)a.bias[0], y = field_of(key, 2) + (u32)a.bias[1];
    a.narrow[i] = x << a.shift[0] | y << a.shift[1] | (field_of(key, 3) + (u32)a.bias[2]);
}
#endif

// Key of a slot's input minus the output's key.
__device__ __forceinline__ Key slot_delta(const SearchTask& a, int slot) {
    int column = slot / a.size_z, z = slot - column * a.size_z;
    int x = column / a.size_y, y = column - x * a.size_y;
    return (Key)(a.base + x * a.step_x + y * a.step_y + z * a.step_z);
}

// Position of the first key that is not less than `query`; it lies in [low, high].
__device__ __forceinline__ int first_not_less(const Key* keys, int low, int high, Key query) {
    int length = high - low;
    while (length > 0) {
        int half = length >> 1;
        // 32-bit positions: rows fit an int, addresses are 64-bit all the same
        if (__ldg(keys + (low + half)) < query) {
            low += half + 1;
            length -= half + 1;
        } else {
            length = half;
        }
    }
    return low;
}

KERNEL(z_delta, SearchArguments, SEARCH_THREADS) {
    int own = 0;
    while (own + 1 < a.n && (int)blockIdx.x >= a.tasks[own + 1].first_block) ++own;
    const SearchTask& map = a.tasks[own];
    const int block = (int)blockIdx.x - map.first_block;
    const int run_slots = DELTAS ? map.size_z : 1;
    const int chunk = block % map.chunks;
    const i64 first_row = (i64)(block / map.chunks) * map.rows;
    const i64 n_target = map.target_count ? *map.target_count : map.n_target;
    const int n_source = map.source_count ? *map.source_count : map.n_source;
    // a tile behind the last site has no rows
    const int rows = (int)max((i64)0, min((i64)map.rows, n_target - first_row));
    const int held = (int)min((i64)map.rows, map.n_target - first_row);
    const int first_run = chunk * map.chunk_runs;
    const int runs = min(map.chunk_runs, map.runs - first_run);
    const int first_slot = first_run * run_slots;
    const int slots = min(runs * run_slots, map.volume - first_slot);

    DYNAMIC_SHARED(bytes);
    const int chunk_slots = map.chunk_runs * run_slots;
    int* tile = (int*)bytes;  // [rows, slots]
    // [chunk_runs], 8 bytes each whatever the keys; a tile has 32 rows or more, so they are aligned
    i64* deltas = (i64*)(tile + map.rows * chunk_slots);
    int* ranges = (int*)(deltas + map.chunk_runs);  // [chunk_runs, 2] positions
    int* counts = ranges + 2 * map.chunk_runs;      // [chunk_slots]

    for (int i = threadIdx.x; i < slots; i += SEARCH_THREADS) counts[i] = 0;
    // outputs are sorted, so the first and the last one of the tile bound every search of a run
    for (int i = threadIdx.x; i < 2 * runs && rows; i += SEARCH_THREADS) {
        const Key delta = slot_delta(map, (first_run + (i >> 1)) * run_slots);
        const i64 row = first_row + (i & 1 ? rows - 1 : 0);
        if (!(i & 1)) deltas[i >> 1] = (i64)delta;
        if (DELTAS)
            ranges[i] = first_not_less(map.source, 0, n_source, __ldg(map.target + row) + delta);
        else
            ranges[i] = i & 1 ? n_source : 0;
    }
    __syncthreads();

    const int items = rows ? runs << map.row_shift : 0;
    for (int item = warp_index(); item < items; item += SEARCH_THREADS / WARP) {
        const int run = item >> map.row_shift;
        const int local = (item - (run << map.row_shift)) * WARP + lane_index();
        const bool live = local < rows;  // spare lanes repeat the last row and write nothing
        const i64 row = first_row + (live ? local : rows - 1);
        int slot = (first_run + run) * run_slots;
        const int last = min(slot + run_slots, map.volume);
        Key query = __ldg(map.target + row) + (Key)deltas[run];
        int position = first_not_less(map.source, ranges[2 * run], ranges[2 * run + 1], query);
        // read only where there is a key; beyond the end stands one that ends every walk
        Key current = position < n_source ? __ldg(map.source + position) : (Key)KEY_MAX;
        for (; slot < last; ++slot, query += (Key)map.step_z) {
            // sites between two wanted z (dilation, strides) are passed over: keys ascend, so at
            // most the z distance of two slots minus one of them
            while (current < query) {
                ++position;
                current = position < n_source ? __ldg(map.source + position) : (Key)KEY_MAX;
            }
            const bool hit = live && current == query && position < n_source;
            if (map.counts) {
                const u32 ballot = __ballot_sync(FULL_MASK, hit);
                if (lane_index() == 0 && ballot)
                    atomicAdd(counts + slot - first_slot, __popc(ballot));
            }
            tile[local * slots + slot - first_slot] = hit ? position : -1;
        }
    }
    __syncthreads();

    if (slots == map.volume) {
        // whole rows: the tile is one stretch of memory. Its first byte is a multiple of 32 rows
        // from the start, hence of 128 bytes, whatever the number of columns
        int* out = map.table + first_row * map.volume;
        const int total = rows * slots;
        for (int i = threadIdx.x; i < total >> 2; i += SEARCH_THREADS)
            ((Quad*)out)[i] = ((const Quad*)tile)[i];
        for (int i = (total & ~3) + threadIdx.x; i < total; i += SEARCH_THREADS) out[i] = tile[i];
    } else {
        // pieces of rows: a warp a piece
        for (int local = warp_index(); local < rows; local += SEARCH_THREADS / WARP) {
            int* out = map.table + (first_row + local) * map.volume + first_slot;
            for (int i = lane_index(); i < slots; i += WARP) out[i] = tile[local * slots + i];
        }
    }
    if (map.fill) {
        for (int local = rows + warp_index(); local < held; local += SEARCH_THREADS / WARP) {
            int* out = map.table + (first_row + local) * map.volume + first_slot;
            for (int i = lane_index(); i < slots; i += WARP) out[i] = -1;
        }
    }
    for (int i = threadIdx.x; map.counts && i < slots; i += SEARCH_THREADS) {
        if (counts[i]) atomicAdd(map.counts + first_slot + i, (u32)counts[i]);
    }
}
