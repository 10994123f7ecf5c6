// Between the two layouts of a map: a table with empty slots, and its pairs listed by slot.
//
// Compaction keeps order (slot, then output row) without atomics: count the filled entries of every
// (slot, chunk of rows), scan those counts, and fill. Positions inside a slot are ints (a slot has
// at most one pair a row); the start of a slot needs 64 bits.

#include "common.cuh"
#include "network.cuh"
#include "quad.cuh"

#define PAIR_THREADS 256
#define PAIR_WARPS 8
#define STAGED_COLUMNS 128
#define STAGED_INTS 4160  // 32 rows of 130, or 128 rows of a 3 x 3 x 3 kernel
#define SCAN_THREADS 256
#define SCAN_ITEMS 4      // consecutive counts of a thread
#define SEGMENTS 4        // of 32 rows that a warp has in flight

struct TableArguments {
    const int* table;    // [n, volume]
    int* counts;         // count: written [volume, chunks]
    const int* starts;   // fill: [volume, chunks] first position inside the slot
    const i64* offsets;  // fill: [volume + 1] first position of the slot
    int* in_index;       // fill: [T]
    int* out_index;      // fill: [T]
    i64 n, chunks;
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
                    a.in_index[to] = found;
                    a.out_index[to] = (int)(top + local);
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

struct ScanArguments {
    const int* counts;  // [slots, chunks], aligned to 16 bytes
    int* starts;        // [slots, chunks] exclusive sums inside a slot
    i64* offsets;       // [slots + 1]
    i64* totals;        // [slots] triplets of every slot, or null; 0 from the first that is too long on
    i64 chunks;
    i64 capacity;       // triplets of all slots that there is room for
    int slots;
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
__device__ __forceinline__ void scan_slot(const ScanArguments& a, int slot) {
    __shared__ i64 parts[SCAN_THREADS / WARP];
    __shared__ int sums[SCAN_THREADS / WARP];
    const i64 before = (i64)slot * a.chunks;
    i64 part = 0;
    for (i64 i = threadIdx.x; i < before / 4; i += SCAN_THREADS) {
        const Quad four = ((const Quad*)a.counts)[i];
        part += (i64)four.x + four.y + four.z + four.w;
    }
    if (threadIdx.x < before % 4) part += a.counts[before - 1 - threadIdx.x];
    const i64 offset = block_sum(part, parts);

    int carry = 0;  // pairs of the slot in the chunks so far
    for (i64 first = 0; first < a.chunks; first += SCAN_THREADS * SCAN_ITEMS) {
        const i64 mine = first + threadIdx.x * SCAN_ITEMS;
        int counts[SCAN_ITEMS], own = 0;
#pragma unroll
        for (int item = 0; item < SCAN_ITEMS; ++item) {
            counts[item] = mine + item < a.chunks ? a.counts[before + mine + item] : 0;
            own += counts[item];
        }
        int sum = own;  // inclusive, of the warp
#pragma unroll
        for (int lanes = 1; lanes < WARP; lanes <<= 1) {
            const int left = __shfl_up_sync(FULL_MASK, sum, lanes);
            if (lane_index() >= lanes) sum += left;
        }
        if (lane_index() == WARP - 1) sums[warp_index()] = sum;
        __syncthreads();
        int start = carry + sum - own;
#pragma unroll
        for (int warp = 0; warp < SCAN_THREADS / WARP; ++warp) {
            if (warp < warp_index()) start += sums[warp];
            carry += sums[warp];
        }
#pragma unroll
        for (int item = 0; item < SCAN_ITEMS; ++item) {
            if (mine + item < a.chunks) a.starts[before + mine + item] = start;
            start += counts[item];
        }
        __syncthreads();  // sums are read before the next round writes them
    }
    if (threadIdx.x == 0) {
        a.offsets[slot] = offset;
        if (slot == a.slots - 1) a.offsets[a.slots] = offset + carry;
        if (a.totals) a.totals[slot] = offset + carry > a.capacity ? 0 : carry;
    }
}

KERNEL(scan_counts, ScanArguments, SCAN_THREADS) { scan_slot(a, blockIdx.x); }

typedef Network<ScanArguments> NetworkScan;

// The counts of all maps of a network.
KERNEL(scan_network, NetworkScan, SCAN_THREADS) {
    int slot;
    const ScanArguments& map = a.own(slot);
    scan_slot(map, slot);
}

struct TransposedArguments {
    const int* transposed;  // [slots, pitch]
    const int* starts;      // [slots, chunks] first position inside the slot
    const i64* offsets;     // [slots + 1]
    int* in_index;          // [T]
    int* out_index;         // [T]
    const int* count;       // sites on the device, or null: n of them
    i64 n, chunks, pitch;   // sites, chunks of the room there is for them, and that room
    i64 capacity;           // triplets that there is room for; longer slots are left out
    int slots, rows;        // rows of a chunk, a multiple of 32
    int mirrored;           // 1: a symmetric map of 2 slots + 1 slots, of which the first are given
};

// A warp takes a chunk of a slot. The mirrored half of a symmetric map holds the same pairs with
// input and output exchanged; keys shift evenly, so inputs ascend where outputs do and the
// exchanged pairs are in order.
__device__ __forceinline__ void fill_slots(const TransposedArguments& a, int block) {
    const i64 warp = (i64)block * PAIR_WARPS + warp_index();
    const i64 slot = warp / a.chunks, chunk = warp - slot * a.chunks;
    if (slot >= a.slots + a.mirrored) return;
    const i64 n = a.count ? (i64)*a.count : a.n;
    const i64 first = chunk * a.rows, end = min(first + a.rows, n);
    if (slot == a.slots) {  // the central slot of a symmetric map
        const i64 start = a.offsets[a.slots];
        for (i64 row = first + lane_index(); row < end; row += WARP) {
            a.in_index[start + row] = (int)row;
            a.out_index[start + row] = (int)row;
        }
        return;
    }
    if (a.offsets[slot + 1] > a.capacity) return;
    const int* column = a.transposed + slot * a.pitch;
    const int start = a.starts[slot * a.chunks + chunk];
    i64 position = a.offsets[slot] + start;
    // slot 2 slots - slot begins where the last `offsets[slot + 1]` triplets of all do
    const i64 mirror = 2 * a.offsets[a.slots] + n - a.offsets[slot + 1] + start - position;
    for (i64 top = first; top < end; top += SEGMENTS * WARP) {
        int found[SEGMENTS];
#pragma unroll
        for (int s = 0; s < SEGMENTS; ++s) {
            const i64 row = top + s * WARP + lane_index();
            found[s] = row < end ? __ldg(column + row) : -1;
        }
#pragma unroll
        for (int s = 0; s < SEGMENTS; ++s) {
            const int row = (int)(top + s * WARP + lane_index());
            const u32 ballot = __ballot_sync(FULL_MASK, found[s] >= 0);
            if (found[s] >= 0) {
                const i64 to = position + rank_below(ballot);
                a.in_index[to] = found[s];
                a.out_index[to] = row;
                if (a.mirrored) {
                    a.in_index[mirror + to] = row;
                    a.out_index[mirror + to] = found[s];
                }
            }
            position += __popc(ballot);
        }
    }
}

KERNEL(fill_from_transposed, TransposedArguments, PAIR_THREADS) { fill_slots(a, blockIdx.x); }

typedef Network<TransposedArguments> NetworkFill;

// The pairs of all maps of a network.
KERNEL(fill_network, NetworkFill, PAIR_THREADS) {
    int block;
    const TransposedArguments& map = a.own(block);
    fill_slots(map, block);
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

struct ScatterArguments {
    const int* in_index;   // [n]
    const int* out_index;  // [n]
    const i64* offsets;    // [volume + 1]
    int* table;            // [outputs, volume], filled with -1 before
    i64 n;
    int volume;
};

KERNEL(scatter_pairs, ScatterArguments, PAIR_THREADS) {
    const i64 i = (i64)blockIdx.x * PAIR_THREADS + threadIdx.x;
    if (i >= a.n) return;
    // the last slot that begins at or before this pair: empty slots begin with the next one
    const int slot = (int)lower_bound(a.offsets + 1, (i64)a.volume, i + 1);
    a.table[(i64)a.out_index[i] * a.volume + slot] = a.in_index[i];
}
