// From cells to sorted, unique, packed keys of every level of a network.
//
// A level's sites are stride * floor(c / stride) of the finest sites (Spira, section 5.5), so all levels
// are sorted in one radix sort: key = (level, coarse cell counted from the lowest one), in as few
// bits as the extent of the cloud needs.

#include "key_fields.cuh"
#include "radix.cuh"

// Extent of the fields a thread has seen; `flush` adds it to the cloud's, one atomic a block and word.
struct Seen {
    u32 above[4] = {0, 0, 0, 0};
    u32 below[4] = {0, 0, 0, 0};
    u32 overflow = 0;

    __device__ void add(int f, u32 field) {
        above[f] = max(above[f], field + 1u);
        below[f] = max(below[f], (1u << field_bits(f)) - field);
    }

    __device__ void flush(Extent* extent) {
        __shared__ u32 block[9];
        if (threadIdx.x < 9) block[threadIdx.x] = 0;
        __syncthreads();
#pragma unroll
        for (int f = 0; f < 4; ++f) {
            u32 most = __reduce_max_sync(FULL_MASK, above[f]), least = __reduce_max_sync(FULL_MASK, below[f]);
            if (lane_index() == 0) {
                atomicMax(&block[f], most);
                atomicMax(&block[4 + f], least);
            }
        }
        u32 flags = __reduce_or_sync(FULL_MASK, overflow);
        if (lane_index() == 0 && flags) atomicOr(&block[8], flags);
        __syncthreads();
        u32* words = (u32*)extent;
        if (threadIdx.x < 8) atomicMax(&words[threadIdx.x], block[threadIdx.x]);
        if (threadIdx.x == 8 && block[8]) atomicOr(&words[8], block[8]);
    }
};

struct CellsArguments {
    const int* cells;  // [N, 4] batch, x, y, z, or null where the keys are there
    i64* keys;
    Extent* extent;
    const u32* count;  // n on the device, or null: then `n`
    i64 n;
};

KERNEL(pack_cells, CellsArguments, 256) {
    Seen seen;
    i64 n = a.count ? (i64)*a.count : a.n;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        int4 cell = ((const int4*)a.cells)[i];
        int part[4] = {cell.x, cell.y, cell.z, cell.w};
        i64 key = 0;
#pragma unroll
        for (int f = 0; f < 4; ++f) {
            int bits = field_bits(f);
            i64 value = (i64)part[f] + field_half(f);
            // the largest batch index stays free, so that no key equals the sentinel
            i64 limit = f ? 1ll << bits : (1ll << bits) - 1;
            if (value < 0 || value >= limit) {
                seen.overflow |= 1u << f;
                value = 0;
            }
            seen.add(f, (u32)value);
            key = (key << bits) | value;
        }
        a.keys[i] = key;
    }
    seen.flush(a.extent);
}

KERNEL(extent_of_keys, CellsArguments, 256) {
    // x is not monotone over clouds, y and z not over x: every key is looked at
    Seen seen;
    i64 n = a.count ? (i64)*a.count : a.n;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        i64 key = a.keys[i];
#pragma unroll
        for (int f = 0; f < 4; ++f) seen.add(f, field_of(key, f));
    }
    seen.flush(a.extent);
}

// Lowest coarse cell of every field and the bits its extent takes, for one level.
struct CellRange {
    int low[4];
    int bits[4];
};

__device__ __forceinline__ CellRange cell_range(const Extent& extent, const Stride& stride) {
    CellRange range;
#pragma unroll
    for (int f = 0; f < 4; ++f) {
        int half = field_half(f), step = f ? stride.axis[f - 1] : 1;
        int low = (int)((1u << field_bits(f)) - extent.below[f]) - half, high = (int)extent.above[f] - 1 - half;
        bool some = extent.above[f] > 0;
        range.low[f] = some ? floor_divide(low, step) : 0;
        range.bits[f] = some ? bits_for((u64)(floor_divide(high, step) - range.low[f]) + 1) : 0;
    }
    return range;
}

struct LevelArguments {
    const i64* keys;     // [n] of the finest level
    const u32* count;    // n on the device, or null: then `n`
    Extent* extent;
    u64* keys_a;
    u64* keys_b;         // [levels * n] each
    u32* values_a;
    u32* values_b;
    u32* state;
    u32* needed;         // passes that the sort takes, or null
    i64 n;
    int levels;
    int key_bits;        // of the level number
    Stride strides[MAX_LEVELS];
};

// Coarse cells of all levels as sort keys, and their digits counted.
KERNEL(level_keys, LevelArguments, 256) {
    __shared__ u32 histogram[MAX_PASSES][RADIX];
    __shared__ CellRange ranges[MAX_LEVELS];
    __shared__ int widest;
    for (int pass = 0; pass < MAX_PASSES; ++pass) histogram[pass][threadIdx.x] = 0;
    if (threadIdx.x == 0) widest = 0;
    __syncthreads();
    if ((int)threadIdx.x < a.levels) {
        CellRange range = cell_range(*a.extent, a.strides[threadIdx.x]);
        ranges[threadIdx.x] = range;
        atomicMax(&widest, range.bits[0] + range.bits[1] + range.bits[2] + range.bits[3]);
    }
    __syncthreads();
    i64 n = a.count ? (i64)*a.count : a.n;
    if (widest + a.key_bits > 64 && threadIdx.x == 0 && blockIdx.x == 0) atomicOr(&a.extent->overflow, 256u);
    int passes = min(passes_for(widest + a.key_bits), MAX_PASSES);
    if (a.needed && threadIdx.x == 0 && blockIdx.x == 0) *a.needed = passes;
    u64* keys = in_second_buffer(passes, 0) ? a.keys_b : a.keys_a;
    u32* values = in_second_buffer(passes, 0) ? a.values_b : a.values_a;
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 base = (i64)blockIdx.x * blockDim.x; base < n; base += step) {
        i64 i = base + threadIdx.x;
        bool valid = i < n;
        i64 key = valid ? a.keys[i] : 0;
        int cell[4];
#pragma unroll
        for (int f = 0; f < 4; ++f) cell[f] = coordinate_of(key, f);
        for (int level = 0; level < a.levels; ++level) {
            const CellRange& range = ranges[level];
            u64 sort_key = level;
            // the level stands above the widest level's cells
            sort_key <<= widest - (range.bits[0] + range.bits[1] + range.bits[2] + range.bits[3]);
#pragma unroll
            for (int f = 0; f < 4; ++f) {
                int coarse = f ? floor_divide(cell[f], a.strides[level].axis[f - 1]) : cell[f];
                sort_key = (sort_key << range.bits[f]) | (u64)(coarse - range.low[f]);
            }
            if (valid) {
                keys[level * n + i] = sort_key;
                values[level * n + i] = (u32)i;
            }
            count_digits(histogram, sort_key, valid, passes);
        }
    }
    finish_histogram(histogram, a.state, passes, (u32)(n * a.levels));
}

struct UniqueArguments {
    const u64* sorted;    // [levels * n] sort keys
    const u32* values;    // [levels * n] row of the finest level
    const i64* keys;      // [n] of the finest level
    const u32* count;
    u32* status;          // [levels, tiles], zeroed
    u32* tickets;         // [levels], zeroed
    i64* unique_keys;     // [levels, capacity]
    u32* first;           // [levels, capacity] a row of the finest level inside every site
    u32* inverse;         // [levels, capacity] site of every row of the finest level
    u32* counts;          // [levels] sites
    const u32* state;     // of the sort
    i64 launched;         // passes of the sort
    i64 n;
    i64 capacity;
    i64 tiles;            // of a level
    Stride strides[MAX_LEVELS];
    u32 rooms[MAX_LEVELS];  // rows that what follows has room for: no inverse leads beyond them
};

// Runs of equal sort keys become sites: one read of the keys, prefix by look-back.
KERNEL(unique_sites, UniqueArguments, 256) {
    __shared__ u32 ticket, before_tile;
    i64 n = a.count ? (i64)*a.count : a.n;
    int level = (int)(blockIdx.x / a.tiles);
    i64 tiles = (n + SORT_TILE - 1) / SORT_TILE;
    if ((i64)(blockIdx.x % a.tiles) >= tiles) {
        if (n == 0 && blockIdx.x % a.tiles == 0 && threadIdx.x == 0) a.counts[level] = 0;
        return;
    }
    if ((i64)a.state[STATE_PASSES] > a.launched) {  // cut short: no sites, and no row that leads anywhere
        if (blockIdx.x % a.tiles == 0 && threadIdx.x == 0) a.counts[level] = 0;
        i64 start = (i64)(blockIdx.x % a.tiles) * SORT_TILE;
        for (i64 i = start + threadIdx.x; i < min(n, start + SORT_TILE); i += blockDim.x) {
            a.first[level * a.capacity + i] = 0;
            a.inverse[level * a.capacity + i] = 0;
        }
        return;
    }
    if (threadIdx.x == 0) ticket = atomicAdd(&a.tickets[level], 1u);
    __syncthreads();
    u32 tile = ticket;
    const u64* sorted = a.sorted + level * n;
    i64 first = (i64)tile * SORT_TILE + (i64)threadIdx.x * SORT_ITEMS;
    u64 key[SORT_ITEMS + 1];
    u32 heads = 0;
#pragma unroll
    for (int i = 0; i <= SORT_ITEMS; ++i) {
        i64 index = first + i - 1;
        key[i] = index >= 0 && index < n ? sorted[index] : ~0ull;
        if (i > 0 && index < n && (index == 0 || key[i] != key[i - 1])) heads |= 1u << (i - 1);
    }
    // all that is gathered is on its way before anything is written, and while tiles before are awaited
    u32 source[SORT_ITEMS];
    i64 fine[SORT_ITEMS];
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; ++i) source[i] = first + i < n ? a.values[level * n + first + i] : 0;
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; ++i) fine[i] = heads >> i & 1u ? a.keys[source[i]] : 0;
    u32 total;
    u32 row = block_prefix((u32)__popc(heads), &total);
    if (warp_index() == 0) {
        u32 before = warp_look_back(a.status + level * a.tiles, tile, total);
        if (lane_index() == 0) before_tile = before;
    }
    __syncthreads();
    row += before_tile;  // runs that began before this thread's items
    Stride stride = a.strides[level];
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; ++i) {
        i64 index = first + i;
        if (index < n) {
            if (heads >> i & 1u) {
                i64 coarse = 0;
#pragma unroll
                for (int f = 0; f < 4; ++f) {
                    int step = f ? stride.axis[f - 1] : 1;
                    int low = floor_divide(coordinate_of(fine[i], f), step) * step;
                    coarse = (coarse << field_bits(f)) | (i64)(low + field_half(f));
                }
                a.unique_keys[level * a.capacity + row] = coarse;
                a.first[level * a.capacity + row] = source[i];
                ++row;
            }
            a.inverse[level * a.capacity + source[i]] = min(row, a.rooms[level]) - 1;
        }
    }
    if (tile == tiles - 1 && threadIdx.x == 0) a.counts[level] = before_tile + total;
}

struct FitArguments {
    const u32* counts;  // [n] sites that there are
    u32* fitting;       // [n] sites that what follows works on
    int n;
    u32 rooms[MAX_LEVELS + 1];  // [n]
};

// Sites of levels that lie in rooms of fixed size: all of them, or none where one level does not fit.
KERNEL(fit_counts, FitArguments, 32) {
    bool fits = true;
    for (int level = 0; level < a.n; ++level) fits &= a.counts[level] <= a.rooms[level];
    const int i = (int)threadIdx.x;
    if (i < a.n) a.fitting[i] = fits ? a.counts[i] : 0;
}

// Row of a coarser level above every row of a finer one: the coarse site of a finest row inside it.
struct AboveTask {
    const u32* first;    // [rows] a finest row inside every site, or null: the finest rows themselves
    const u32* inverse;  // [finest rows] site of the coarser level
    i64* above;          // [rows], written
    i64 rows;
    i64 first_block;
};

struct AboveArguments {
    AboveTask tasks[MAX_LEVELS];
    int n;
};

KERNEL(rows_above, AboveArguments, 256) {
    int number = 0;
    while (number + 1 < a.n && (i64)blockIdx.x >= a.tasks[number + 1].first_block) ++number;
    const AboveTask& task = a.tasks[number];
    i64 row = ((i64)blockIdx.x - task.first_block) * blockDim.x + threadIdx.x;
    if (row < task.rows) task.above[row] = (i64)task.inverse[task.first ? (i64)task.first[row] : row];
}
