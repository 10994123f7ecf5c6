// Search of the neighbours of a tile of output rows among sorted packed keys, and the layouts in
// which they are written. z_delta.cu and binary_search.cu differ in how a slot is found.
//
// A run is a list of slots with one binary search: the K_z slots of equal (x, y) for z-delta
// search, a single slot for the simple one. A block owns `rows` consecutive outputs and a chunk of
// runs; a warp takes 32 consecutive outputs and one run, so its lanes walk the same search path.
//
// What is written (LAYOUT):
//   TABLE       table [n_target, volume], coalesced over slots through a tile in shared memory
//   TRANSPOSED  transposed [volume, n_target], coalesced over outputs
//   HYBRID      slots of L1 norm < threshold as a table [n_target, columns], others as TRANSPOSED
//   HALF_TABLE  table of a symmetric map: `limit` slots searched, the mirrored ones scattered

#pragma once
#include "common.cuh"
#include "quad.cuh"

#define TABLE 0
#define TRANSPOSED 1
#define HYBRID 2
#define HALF_TABLE 3

#ifndef KEY_BITS
#define KEY_BITS 64
#endif
#ifndef LAYOUT
#define LAYOUT TABLE
#endif
#define SEARCH_THREADS 256
#define MASK_BITS 31  // of a mask word, so that none is negative

#if KEY_BITS == 64
typedef i64 Key;
#define KEY_MAX 0x7fffffffffffffffll
#else
typedef u32 Key;
#define KEY_MAX 0xffffffffu
#endif

struct SearchArguments {
    const Key* source;    // [n_source] sorted, unique
    const i64* target;    // [n_target] sorted, always the 64-bit keys
    int* table;           // [n_target, columns]
    int* transposed;      // [slots written this way, n_target]
    int* masks;           // [n_target, words], or null; zeroed before if `join`
    u64* counts;          // [volume] triplets, zeroed before, or null
    int* tile_counts;     // [slots written transposed, tiles], or null
    const int* source_count;  // sites on the device, or null: n_source of them
    const int* target_count;  // the same: n_target, which is what there is room for in any case
    i64 n_target, tiles;
    i64 base, step_x, step_y, step_z;  // key of slot (x, y, z) minus the output's, as a sum
    int n_source;
    int size_y, size_z, volume;
    int limit;                              // slots searched: volume, or its half rounded down
    int rows, row_shift;                    // of a tile: 32 << row_shift
    int runs, chunk_runs, chunks;           // runs in all, of a block, and blocks of a tile
    int columns, words;                     // of the table, of a row's mask
    int listed;                             // hybrid: sparse slots written, from the first
    int join;                               // several blocks write one mask: by atomics
    int fill;                               // hybrid: rows of the table behind the last site are written as empty
    int threshold;                          // of the L1 norm
    int dilation_x, dilation_y, dilation_z; // offset = dilation * slot - padding
    int padding_x, padding_y, padding_z;
    int shift_x, shift_y, shift_z;          // of the fields of a 64-bit key
    int bits_x, bits_y, bits_z;
    int bias_x, bias_y, bias_z;             // 32-bit field minus 64-bit field
    int narrow_x, narrow_y;                 // shifts of x and y in a 32-bit key; z has none
};

#if KEY_BITS == 32
struct NarrowArguments {
    const i64* keys;  // [n]
    u32* narrow;      // [n]
    i64 n;
    int shift_x, shift_y, shift_z, bits_x, bits_y, bits_z, bias_x, bias_y, bias_z;
    int narrow_x, narrow_y;
};

__device__ __forceinline__ u32 narrow_field(i64 key, int shift, int bits, int bias) {
    return (u32)((key >> shift) & ((1ll << bits) - 1)) + (u32)bias;
}

// 32-bit key of a 64-bit one whose cloud is 0 and whose coordinates fit: the caller has checked.
template <typename Arguments>
__device__ __forceinline__ u32 narrow_key(const Arguments& a, i64 key) {
    return (narrow_field(key, a.shift_x, a.bits_x, a.bias_x) << a.narrow_x) |
           (narrow_field(key, a.shift_y, a.bits_y, a.bias_y) << a.narrow_y) |
           narrow_field(key, a.shift_z, a.bits_z, a.bias_z);
}

KERNEL(narrow_keys, NarrowArguments, 256) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n) a.narrow[i] = narrow_key(a, a.keys[i]);
}
#endif

__device__ __forceinline__ Key target_key(const SearchArguments& a, i64 row) {
#if KEY_BITS == 32
    return narrow_key(a, __ldg(a.target + row));
#else
    return __ldg(a.target + row);
#endif
}

// Key of a slot's input minus the output's key.
__device__ __forceinline__ Key slot_delta(const SearchArguments& a, int slot) {
    int column = slot / a.size_z, z = slot - column * a.size_z;
    int x = column / a.size_y, y = column - x * a.size_y;
    return (Key)(a.base + x * a.step_x + y * a.step_y + z * a.step_z);
}

__device__ __forceinline__ int slot_norm(const SearchArguments& a, int slot) {
    int column = slot / a.size_z, z = slot - column * a.size_z;
    int x = column / a.size_y, y = column - x * a.size_y;
    x = a.dilation_x * x - a.padding_x;
    y = a.dilation_y * y - a.padding_y;
    z = a.dilation_z * z - a.padding_z;
    return (x < 0 ? -x : x) + (y < 0 ? -y : y) + (z < 0 ? -z : z);
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

// Where a slot goes in the hybrid layout: column of the table, or ~row of the transposed one.
__device__ __forceinline__ void place_slots(const SearchArguments& a, int* place) {
    int dense = 0;
    for (int start = 0; start < a.volume; start += WARP) {
        int slot = start + lane_index();
        bool near = slot < a.volume && slot_norm(a, slot) < a.threshold;
        u32 ballot = __ballot_sync(FULL_MASK, near);
        int before = dense + rank_below(ballot);
        if (slot < a.volume) place[slot] = near ? before : ~(slot - before);
        dense += __popc(ballot);
    }
}

__device__ __forceinline__ void join_mask(int* masks, i64 row, int words, int slot) {
    atomicOr(masks + row * words + slot / MASK_BITS, 1 << (slot % MASK_BITS));
}

template <bool Z_DELTA>
__device__ __forceinline__ void search_tile(const SearchArguments& a, u32 block) {
    const bool tiled = LAYOUT != TRANSPOSED;
    const int run_slots = Z_DELTA ? a.size_z : 1;
    const i64 tile_index = block / (u32)a.chunks;
    const int chunk = (int)(block % (u32)a.chunks);
    const i64 first_row = tile_index * a.rows;
    const i64 n_target = a.target_count ? (i64)*a.target_count : a.n_target;
    const int n_source = a.source_count ? *a.source_count : a.n_source;
    // a tile behind the last site has no rows: all that is due is that its counts are zero
    const int rows = (int)max((i64)0, min((i64)a.rows, n_target - first_row));
    const int first_run = chunk * a.chunk_runs;
    const int runs = min(a.chunk_runs, a.runs - first_run);
    const int first_slot = first_run * run_slots;
    const int slots = min(runs * run_slots, a.limit - first_slot);
    const int width = LAYOUT == HYBRID ? a.columns : slots;  // of a row in the tile

    DYNAMIC_SHARED(bytes);
    const int chunk_slots = a.chunk_runs * run_slots;
    const int tile_columns = LAYOUT == HYBRID ? a.columns : tiled ? chunk_slots : 0;
    int* tile = (int*)bytes;  // [rows, width]
    // [chunk_runs], 8 bytes each whatever the keys; a tile has 32 rows or more, so they are aligned
    i64* deltas = (i64*)(tile + a.rows * tile_columns);
    int* ranges = (int*)(deltas + a.chunk_runs);  // [chunk_runs, 2] positions
    int* counts = ranges + 2 * a.chunk_runs;      // [chunk_slots]
    int* masks = counts + chunk_slots;            // [rows, words] if masks are wanted
    int* place = masks + (a.masks ? a.rows * a.words : 0);  // [volume] in the hybrid layout

    for (int i = threadIdx.x; i < slots; i += SEARCH_THREADS) counts[i] = 0;
    if (a.masks)
        for (int i = threadIdx.x; i < a.rows * a.words; i += SEARCH_THREADS) masks[i] = 0;
    // outputs are sorted, so the first and the last one of the tile bound every search of a run
    for (int i = threadIdx.x; i < 2 * runs && rows; i += SEARCH_THREADS) {
        const Key delta = slot_delta(a, (first_run + (i >> 1)) * run_slots);
        const i64 row = first_row + (i & 1 ? rows - 1 : 0);
        if (!(i & 1)) deltas[i >> 1] = (i64)delta;
        if (Z_DELTA)
            ranges[i] = first_not_less(a.source, 0, n_source, target_key(a, row) + delta);
        else
            ranges[i] = i & 1 ? n_source : 0;
    }
    if (LAYOUT == HYBRID && warp_index() == SEARCH_THREADS / WARP - 1) place_slots(a, place);
    __syncthreads();

    const int items = rows ? runs << a.row_shift : 0;
    for (int item = warp_index(); item < items; item += SEARCH_THREADS / WARP) {
        const int run = item >> a.row_shift;
        const int local = (item - (run << a.row_shift)) * WARP + lane_index();
        const bool live = local < rows;  // spare lanes repeat the last row and write nothing
        const i64 row = first_row + (live ? local : rows - 1);
        int slot = (first_run + run) * run_slots;
        const int last = min(slot + run_slots, a.limit);
        Key query = target_key(a, row) + (Key)deltas[run];
        int position = first_not_less(a.source, ranges[2 * run], ranges[2 * run + 1], query);
        // read only where there is a key; beyond the end stands one that ends every walk
        Key current = position < n_source ? __ldg(a.source + position) : (Key)KEY_MAX;
        int word = slot / MASK_BITS, bit = slot - word * MASK_BITS;
        u32 filled = 0;
        for (; slot < last; ++slot, query += (Key)a.step_z) {
            // sites between two wanted z (dilation, strides) are passed over: keys ascend, so at
            // most the z distance of two slots minus one of them
            while (current < query) {
                ++position;
                current = position < n_source ? __ldg(a.source + position) : (Key)KEY_MAX;
            }
            const bool hit = live && current == query && position < n_source;
            const int found = hit ? position : -1;
            const u32 ballot = __ballot_sync(FULL_MASK, hit);
            if (lane_index() == 0 && ballot) atomicAdd(counts + slot - first_slot, __popc(ballot));
            if (LAYOUT == TABLE || LAYOUT == HALF_TABLE) {
                tile[local * width + slot - first_slot] = found;
            } else if (LAYOUT == TRANSPOSED) {
                if (live) a.transposed[(i64)slot * a.n_target + row] = found;
            } else {
                const int to = place[slot];
                if (to >= 0)
                    tile[local * width + to] = found;
                else if (live && ~to < a.listed)
                    a.transposed[(i64)~to * a.n_target + row] = found;
            }
            if (LAYOUT == HALF_TABLE && hit) {
                // (i, j, k) is a triplet, so (j, i, K - 1 - k) is one
                const int mirror = a.volume - 1 - slot;
                a.table[(i64)position * a.volume + mirror] = (int)row;
                if (a.masks) join_mask(a.masks, position, a.words, mirror);
            }
            filled |= (u32)hit << bit;
            if (++bit == MASK_BITS) {
                if (a.masks && filled) atomicOr(masks + local * a.words + word, (int)filled);
                filled = 0;
                bit = 0;
                ++word;
            }
        }
        if (a.masks && filled) atomicOr(masks + local * a.words + word, (int)filled);
    }
    __syncthreads();

    if (tiled && width == a.columns) {
        // whole rows: the tile is one stretch of memory. Its first byte is a multiple of 32 rows
        // from the start, hence of 128 bytes, whatever the number of columns
        int* out = a.table + first_row * a.columns;
        const int total = rows * width;
        for (int i = threadIdx.x; i < total >> 2; i += SEARCH_THREADS)
            ((Quad*)out)[i] = ((const Quad*)tile)[i];
        for (int i = (total & ~3) + threadIdx.x; i < total; i += SEARCH_THREADS) out[i] = tile[i];
        if (LAYOUT == HYBRID && a.fill) {
            const int held = (int)min((i64)a.rows, a.n_target - first_row) * width;
            for (int i = total + threadIdx.x; i < held; i += SEARCH_THREADS) out[i] = -1;
        }
    } else if (tiled) {
        // pieces of rows: a warp a piece
        for (int local = warp_index(); local < rows; local += SEARCH_THREADS / WARP) {
            int* out = a.table + (first_row + local) * a.columns + first_slot;
            for (int i = lane_index(); i < width; i += WARP) out[i] = tile[local * width + i];
        }
    }
    if (LAYOUT == HALF_TABLE && chunk == 0) {
        // the central slot: every site is its own neighbour
        for (int local = threadIdx.x; local < rows; local += SEARCH_THREADS) {
            const i64 row = first_row + local;
            a.table[row * a.volume + a.volume / 2] = (int)row;
            if (a.masks) join_mask(a.masks, row, a.words, a.volume / 2);
        }
        if (a.counts && threadIdx.x == 0) atomicAdd(a.counts + a.volume / 2, (u64)rows);
    }
    if (a.masks) {
        int* out = a.masks + first_row * a.words;
        for (int i = threadIdx.x; i < rows * a.words; i += SEARCH_THREADS) {
            if (!a.join)
                out[i] = masks[i];
            else if (masks[i])
                atomicOr(out + i, masks[i]);
        }
    }
    for (int i = threadIdx.x; i < slots; i += SEARCH_THREADS) {
        const int slot = first_slot + i;
        if (a.counts && counts[i]) {
            atomicAdd(a.counts + slot, (u64)counts[i]);
            if (LAYOUT == HALF_TABLE) atomicAdd(a.counts + (a.volume - 1 - slot), (u64)counts[i]);
        }
        if (a.tile_counts) {
            const int row = LAYOUT == HYBRID ? ~place[slot] : slot;
            if (row >= 0 && (LAYOUT != HYBRID || row < a.listed)) a.tile_counts[row * a.tiles + tile_index] = counts[i];
        }
    }
}
