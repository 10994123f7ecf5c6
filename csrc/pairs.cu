// Between the two layouts of a map: a table with empty slots, and its pairs listed by slot.
//
// Compaction keeps order (slot, then output row) without atomics: count the filled entries of every
// (slot, chunk of rows), scan those counts, and fill. Positions inside a slot are ints (a slot has
// at most one pair a row); the start of a slot needs 64 bits.

#include "look_back.cuh"

#define PAIR_THREADS 256
#define PAIR_WARPS 8
#define STAGED_COLUMNS 128
#define STAGED_INTS 4160  // 32 rows of 130, or 128 rows of a 3 x 3 x 3 kernel
#define SCAN_THREADS 256
#define SCAN_ITEMS 4      // consecutive counts of a thread

struct TableArguments {
    const int* table;    // [n, volume]
    int* counts;         // count: written [volume, chunks]
    const int* starts;   // fill: [volume, chunks] first position inside the slot
    const i64* offsets;  // fill: [volume + 1] first position of the slot
    int* in_index;       // fill: [T]
    int* out_index;      // fill: [T]
    i64 n, chunks;
    i64 capacity;        // fill: pairs that there is room for
    int volume, rows;    // rows of a chunk, a multiple of 32
    int strips;          // blocks a chunk: strips of STAGED_COLUMNS slots
};

// A block takes a chunk of rows and a strip of slots. Rows pass through shared memory, so that they
// are read along slots and counted along rows; a slot always belongs to the same warp.
template <bool FILL>
__device__ __forceinline__ void walk_table(const TableArguments& a) {
    __shared__ int tile[STAGED_INTS];
    __shared__ i64 position[STAGED_COLUMNS];  // of the next pair of each slot
    const i64 chunk = blockIdx.x / (u32)a.strips;
    const int first_slot = (int)(blockIdx.x % (u32)a.strips) * STAGED_COLUMNS;
    const int slots = min(STAGED_COLUMNS, a.volume - first_slot);
    const int pitch = slots | 1;  // odd: a column lies in 32 banks
    const int height = STAGED_INTS / pitch / WARP * WARP;
    const i64 first_row = chunk * a.rows, end = min(first_row + a.rows, a.n);
    for (int i = threadIdx.x; i < slots; i += PAIR_THREADS) {
        const int slot = first_slot + i;
        position[i] = FILL ? a.offsets[slot] + a.starts[slot * a.chunks + chunk] : 0;
    }
    for (i64 top = first_row; top < end; top += height) {
        const int rows = (int)min((i64)height, end - top);
        for (int local = warp_index(); local < rows; local += PAIR_WARPS) {
            const int* row = a.table + (top + local) * a.volume + first_slot;
            for (int i = lane_index(); i < slots; i += WARP) tile[local * pitch + i] = row[i];
        }
        __syncthreads();
        for (int slot = warp_index(); slot < slots; slot += PAIR_WARPS) {
            i64 next = position[slot];
            for (int start = 0; start < rows; start += WARP) {
                const int local = start + lane_index();
                const int found = local < rows ? tile[local * pitch + slot] : -1;
                const u32 ballot = __ballot_sync(FULL_MASK, found >= 0);
                if (FILL && found >= 0) {
                    const i64 to = next + rank_below(ballot);
                    if (to < a.capacity) {
                        a.in_index[to] = found;
                        a.out_index[to] = (int)(top + local);
                    }
                }
                next += __popc(ballot);
            }
            __syncwarp();
            if (lane_index() == 0) position[slot] = next;
        }
        __syncthreads();
    }
    if (!FILL)
        for (int i = threadIdx.x; i < slots; i += PAIR_THREADS)
            a.counts[(first_slot + i) * a.chunks + chunk] = (int)position[i];
}

KERNEL(count_table, TableArguments, PAIR_THREADS) { walk_table<false>(a); }

KERNEL(fill_from_table, TableArguments, PAIR_THREADS) { walk_table<true>(a); }

#define MAX_SCANS 16

struct Scan {
    const int* counts;  // [slots, chunks], aligned to 16 bytes
    int* starts;        // [slots, chunks] exclusive sums inside a slot
    i64* offsets;       // [slots + 1]
    i64 chunks;
    int slots, first;   // blocks, a slot each
};

struct ScanArguments {
    int count;
    Scan scans[MAX_SCANS];
};

// Sum over the threads of a block, known to all of them.
__device__ __forceinline__ i64 block_sum(i64 value, i64* parts) {
#pragma unroll
    for (int lanes = WARP / 2; lanes; lanes >>= 1)
        value += __shfl_xor_sync(FULL_MASK, value, lanes);
    if (lane_index() == 0) parts[warp_index()] = value;
    __syncthreads();
    i64 sum = 0;
#pragma unroll
    for (int warp = 0; warp < SCAN_THREADS / WARP; ++warp) sum += parts[warp];
    return sum;
}

// A block a slot. It sums all counts of the slots before its own: reading some hundred kilobytes
// again from L2 costs less than a second pass, or than blocks that wait for each other.
KERNEL(scan_counts, ScanArguments, SCAN_THREADS) {
    int number = a.count - 1;
    while (a.scans[number].first > (int)blockIdx.x) --number;
    const Scan& scan = a.scans[number];
    const int slot = (int)blockIdx.x - scan.first;
    __shared__ i64 parts[SCAN_THREADS / WARP];
    const i64 before = (i64)slot * scan.chunks;
    i64 part = 0;
    for (i64 i = threadIdx.x; i < before / 4; i += SCAN_THREADS) {
        const Quad four = ((const Quad*)scan.counts)[i];
        part += (i64)four.x + four.y + four.z + four.w;
    }
    if (threadIdx.x < before % 4) part += scan.counts[before - 1 - threadIdx.x];
    const i64 offset = block_sum(part, parts);

    int carry = 0;  // pairs of the slot in the chunks so far
    for (i64 first = 0; first < scan.chunks; first += SCAN_THREADS * SCAN_ITEMS) {
        const i64 mine = first + threadIdx.x * SCAN_ITEMS;
        int counts[SCAN_ITEMS], own = 0;
#pragma unroll
        for (int item = 0; item < SCAN_ITEMS; ++item) {
            counts[item] = mine + item < scan.chunks ? scan.counts[before + mine + item] : 0;
            own += counts[item];
        }
        u32 all;
        int start = carry + (int)block_prefix((u32)own, &all);
        carry += (int)all;
#pragma unroll
        for (int item = 0; item < SCAN_ITEMS; ++item) {
            if (mine + item < scan.chunks) scan.starts[before + mine + item] = start;
            start += counts[item];
        }
    }
    if (threadIdx.x == 0) {
        scan.offsets[slot] = offset;
        if (slot == scan.slots - 1) scan.offsets[scan.slots] = offset + carry;
    }
}

struct ReverseArguments {
    const int* table;   // [n, volume]
    int* reversed;      // [inputs, volume], filled with -1 before
    i64 n;
    int volume;
};

// Table of the transposed map: a warp a row. At most one output fills a slot of an input.
KERNEL(reverse_table, ReverseArguments, PAIR_THREADS) {
    const i64 row = (i64)blockIdx.x * PAIR_WARPS + warp_index();
    if (row >= a.n) return;
    for (int slot = lane_index(); slot < a.volume; slot += WARP) {
        const int found = a.table[row * a.volume + slot];
        if (found >= 0) a.reversed[(i64)found * a.volume + slot] = (int)row;
    }
}
