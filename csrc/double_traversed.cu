// Neighbour table of sorted voxels by double-traversed binary search (Minuet, section 5.1).
//
// The queries of slot k are the sorted target keys plus one constant, so every slot is a sorted
// segment of queries that is never written down. Three kernels, in this order:
//     split_queries  backward search: the last key of every source block is looked up among the
//                    queries, which splits each segment into query blocks
//     search_blocks  forward search: a thread block holds one source block in shared memory and
//                    looks up its query block there; one column of results a slot
//     write_rows     columns to rows of the table, with the slot counts
//
// Keys are compared unsigned: `pivot - delta` and `key + delta` never wrap, not even for the
// largest key of a layout.

#include "common.cuh"

#ifndef SOURCE_BLOCK
#define SOURCE_BLOCK 256  // B, a power of two
#endif
#ifndef QUERY_BLOCK
#define QUERY_BLOCK 512  // C
#endif
#define THREADS 128
#define MASK_BITS 31       // slots of a tile, a bit each
#define SPLITS (WARP - 1)  // source blocks of a warp: the last lane only ends the one before it
#define PARTS ((SOURCE_BLOCK + THREADS - 1) / THREADS)  // keys of a source block a thread loads

// Queries `begin` .. `begin` of the next entry can only equal keys of one source block.
struct __align__(8) QueryBlock {
    int source_block;
    int begin;
};

struct Arguments {
    const u64* source;   // [n_source] sorted
    const u64* target;   // [n_target] sorted
    QueryBlock* blocks;  // [volume, segments + 1]
    u64* deltas;         // [volume] query - target key
    int* columns;        // [volume, pitch] source row of every query, -1 where there is none
    int* table;          // [n_target, volume]
    u64* counts;         // [volume]
    i64 origin, step_x, step_y, step_z;  // delta of slot (x, y, z) = origin + x step_x + ...
    i64 pitch;                           // n_target, rounded up to whole cache lines
    int size_y, size_z;
    int n_source, n_target;
    int volume;    // slots K
    int segments;  // query blocks of a slot, empty ones included
};

__device__ __forceinline__ u64 key_delta(const Arguments& a, int slot) {
    const int z = slot % a.size_z, column = slot / a.size_z;
    const int y = column % a.size_y, x = column / a.size_y;
    return (u64)(a.origin + x * a.step_x + y * a.step_y + z * a.step_z);
}

__device__ __forceinline__ int source_blocks(const Arguments& a) {
    return (a.n_source + SOURCE_BLOCK - 1) / SOURCE_BLOCK;
}

// First query of a source block: the first one above the last key of the block before it. Queries
// above the last key of all equal nothing, and go to the last block, which answers -1.
__device__ __forceinline__ int first_query(const Arguments& a, int source_block, u64 delta) {
    if (source_block <= 0) return 0;
    if (source_block >= source_blocks(a)) return a.n_target;
    const u64 pivot = a.source[(i64)source_block * SOURCE_BLOCK - 1];
    return (int)lower_bound(a.target, a.n_target, pivot - delta + 1);
}

// A warp splits the queries of one slot between 31 source blocks.
//
// A range of queries is cut every C queries. Where its entries stand in the slot's list would take
// a prefix sum; instead range s owns the entries s + begin / C .. s + end / C, which follow each
// other without a gap, are known to its thread alone, and are as many as the range needs or one
// more, which stays empty. N_in / B + N_out / C entries a slot, and no count for the host.
KERNEL(split_queries, Arguments, THREADS) {
    const u32 warp = blockIdx.x * (THREADS / WARP) + warp_index();
    const int blocks = source_blocks(a), lane = lane_index();
    const u32 warps = (blocks + SPLITS - 1) / SPLITS;  // of a slot
    const int slot = (int)(warp / warps);
    const bool active = slot < a.volume;  // the same in all lanes
    const int block = (int)(warp % warps) * SPLITS + lane;

    // there are at least as many threads as slots; write_rows sums into the counts
    const i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (thread < a.volume) a.counts[thread] = 0;
    if (thread < a.volume) a.deltas[thread] = key_delta(a, (int)thread);

    const int begin = active ? first_query(a, block, key_delta(a, slot)) : 0;
    const int end = __shfl_down_sync(FULL_MASK, begin, 1);
    QueryBlock* list = a.blocks + (i64)(active ? slot : 0) * (a.segments + 1);

    const bool own = active && lane < SPLITS && block < blocks;
    const int place = block + begin / QUERY_BLOCK;
    const int entries = own ? end / QUERY_BLOCK - begin / QUERY_BLOCK + 1 : 0;
    if (own) {
        list[place] = {block, begin};
        if (entries > 1) list[place + 1] = {block, (int)min((i64)begin + QUERY_BLOCK, (i64)end)};
        if (block == blocks - 1) list[a.segments] = {blocks, a.n_target};  // ends the last entry
    }
    // sparse sources meet dense targets: the rest of a long range is written by the whole warp
    for (u32 left = __ballot_sync(FULL_MASK, entries > 2); left; left &= left - 1) {
        const int leader = __ffs(left) - 1;
        const int its_block = __shfl_sync(FULL_MASK, block, leader);
        const int its_place = __shfl_sync(FULL_MASK, place, leader);
        const int its_entries = __shfl_sync(FULL_MASK, entries, leader);
        const i64 its_begin = __shfl_sync(FULL_MASK, begin, leader);
        const i64 its_end = __shfl_sync(FULL_MASK, end, leader);
        for (int entry = 2 + lane; entry < its_entries; entry += WARP)
            list[its_place + entry] = {its_block,
                                       (int)min(its_begin + (i64)entry * QUERY_BLOCK, its_end)};
    }
}

// Keys of the block that are less than the query, but at most B - 1: log2(B) steps without a
// branch, so that the lanes of a warp never part. Counted in bytes: a step is a load at a constant
// distance, a comparison and a conditional addition.
__device__ __forceinline__ int position_of(const u64* keys, u64 query) {
    const unsigned char* base = (const unsigned char*)keys;
    int bytes = 0;
#pragma unroll
    for (int step = SOURCE_BLOCK / 2; step > 0; step /= 2)
        if (*(const u64*)(base + bytes + (step - 1) * 8) < query) bytes += step * 8;
    return bytes / 8;
}

// One query block of one slot. Slots run fastest: their query blocks of one number lie near each
// other in the keys, which stay in the L2 cache however many there are.
KERNEL(search_blocks, Arguments, THREADS) {
    __shared__ u64 keys[SOURCE_BLOCK];
    const int slot = blockIdx.x % a.volume;
    const i64 segment = blockIdx.x / a.volume;
    const QueryBlock* entry = a.blocks + (i64)slot * (a.segments + 1) + segment;
    const QueryBlock here = entry[0], following = entry[1];
    const u64 delta = a.deltas[slot];
    const int begin = here.begin, end = following.begin;
    if (begin == end) return;

    // all loads on their way before the first is waited for; past its end the source repeats its
    // last key, and a search finds the first of equal keys
    int index = begin + (int)threadIdx.x;
    u64 next = a.target[min(index, a.n_target - 1)];
    const i64 first = (i64)here.source_block * SOURCE_BLOCK;
    u64 parts[PARTS];
#pragma unroll
    for (int part = 0; part < PARTS; ++part)
        parts[part] = a.source[min(first + part * THREADS + threadIdx.x, (i64)a.n_source - 1)];
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int place = part * THREADS + (int)threadIdx.x;
        if (SOURCE_BLOCK % THREADS == 0 || place < SOURCE_BLOCK) keys[place] = parts[part];
    }
    __syncthreads();

    int* column = a.columns + slot * a.pitch;
    while (index < end) {
        const u64 query = next + delta;
        const int then = index + THREADS;
        next = a.target[min(then, a.n_target - 1)];  // on its way during the search
        const int position = position_of(keys, query);
        column[index] = keys[position] == query ? (int)first + position : -1;
        index = then;
    }
}

// Bit `row` of lane `slot` becomes bit `slot` of lane `row`: five exchanges of half-blocks.
__device__ __forceinline__ u32 transposed_bits(u32 bits) {
    u32 low = 0x0000ffffu;  // columns of the left half of every block
#pragma unroll
    for (int half = WARP / 2; half > 0; half /= 2) {
        const u32 other = __shfl_xor_sync(FULL_MASK, bits, half);
        bits = lane_index() & half ? (bits & ~low) | (other >> half & low)
                                   : (bits & low) | (other & low) << half;
        low ^= low << (half / 2);
    }
    return bits;
}

// Tiles of 32 rows x up to 31 slots, one a warp: read by columns, written by rows,
// turned in shared memory. A lane holds a row while reading, and a bit for every slot it fills.
#define BATCH 8  // columns of a tile that are on their way at once

KERNEL(write_rows, Arguments, THREADS) {
    __shared__ Quad tiles[THREADS / WARP][WARP * MASK_BITS / 4];
    __shared__ int totals[THREADS / WARP][WARP];
    const int lane = lane_index(), warp = warp_index();
    const int words = (a.volume + MASK_BITS - 1) / MASK_BITS;
    const int word = blockIdx.x % words;
    const int first_slot = word * MASK_BITS;
    const int width = min(MASK_BITS, a.volume - first_slot);
    // one word: the tile is a piece of the table as it stands. Several: rows of a tile lie apart in
    // the table, and an odd stride keeps the 32 rows of a slot in 32 banks
    const bool whole = words == 1;
    const int stride = whole ? width : width | 1;
    const int tile_count = (a.n_target + WARP - 1) / WARP;
    const int tile_step = (int)(gridDim.x / words) * (THREADS / WARP);
    const int slot_step = WARP % width;
    const i64 row_step = (i64)(WARP / width) * a.volume;
    int* tile = (int*)tiles[warp];

    int total = 0;  // filled places of slot number `lane`
    for (i64 number = (i64)(blockIdx.x / words) * (THREADS / WARP) + warp; number < tile_count;
         number += tile_step) {
        const i64 first_row = number * WARP, row = first_row + lane;
        const bool inside = row < a.n_target;
        // lanes after the last row read it again: their results are not written
        const int* column = a.columns + first_slot * a.pitch + min(row, (i64)a.n_target - 1);
        u32 mask = 0;
        for (int start = 0; start < width; start += BATCH) {
            int rows[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                // past the last slot it is read again: no load waits for a condition
                const int place = min(start + b, width - 1);
                rows[b] = column[(u64)(u32)place * (u32)a.pitch];
            }
            u32 filled = 0;
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (start + b < width) tile[lane * stride + start + b] = rows[b];
                if (rows[b] >= 0) filled |= 1u << b;
            }
            mask |= filled << start;
        }
        mask &= (1u << width) - 1u;
        total += __popc(transposed_bits(inside ? mask : 0u));
        __syncwarp();

        int* out = a.table + first_row * a.volume + first_slot;
        const int size = (int)min((i64)WARP, a.n_target - first_row) * width;
        if (whole) {
            const int quads = size / 4;  // a tile of the table begins at a multiple of 128 bytes
            for (int place = lane; place < quads; place += WARP)
                ((Quad*)out)[place] = tiles[warp][place];
            if (quads * 4 + lane < size) out[quads * 4 + lane] = tile[quads * 4 + lane];
        } else {
            // a step of 32 elements is some rows and a rest, which may wrap into one row more
            int slot = lane % width, from = lane / width * stride + slot;
            i64 to = (i64)(lane / width) * a.volume + slot;
            for (int place = lane; place < size; place += WARP) {
                out[to] = tile[from];
                slot += slot_step;
                from += WARP / width * stride + slot_step;
                to += row_step + slot_step;
                if (slot >= width) {
                    slot -= width;
                    from += stride - width;
                    to += a.volume - width;
                }
            }
        }
        __syncwarp();  // the tile is free again
    }
    totals[warp][lane] = total;
    __syncthreads();
    if (warp == 0 && lane < width) {
        u64 sum = 0;
        for (int w = 0; w < THREADS / WARP; ++w) sum += (u64)totals[w][lane];
        if (sum) atomicAdd(a.counts + first_slot + lane, sum);
    }
}
