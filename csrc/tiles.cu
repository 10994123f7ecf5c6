// Tiles of rows that share slots, and the input rows they gather, for many maps in one sort.
//
// Rows are sorted by the Gray code of their slot mask, so that neighbours differ in few slots and
// the rows of a tile share most of theirs. A map may be cut into sections: some of its slots, with
// an order of rows of their own. Tiles of a map are stored by falling number of slots; how many
// tiles stand before one is counted in groups, so that every block finds its place by itself.

#define OWN_BITS 9  // as in pcnn/geometry/slot_tiles.py
#define FOLDED_BITS 10
#include "gray_order.cuh"
#include "radix.cuh"

#define MAX_TASKS 32
#define TILE_ROWS 128
#define GROUP_TILES 128
#define LIST_THREADS TILE_ROWS
#define WORDS_AT_ONCE 5  // of a mask: all of a kernel of 5^3 slots

// A section of a map: slots `section`, `section + sections`, ... All sections write into the tiles
// of their map.
struct TileTask {
    const int* masks;  // [rows, words]
    const int* table;  // [rows, K]
    int* out;          // [tiles, TILE_ROWS]
    int* slots;        // [tiles, width]
    int* counts;       // [tiles]
    int* lists;        // [tiles, width, TILE_ROWS]
    const u32* count;  // rows that hold a site, or null: all of them; spare ones fill no slot
    i64 rows;
    i64 first_item;    // rows of the tasks before
    i64 first_tile;    // tiles of the tasks before
    i64 map_tile;      // tiles of the maps before
    i64 first_word;    // of the task's [tiles, words] slots of tiles
    i64 first_bin;     // of the map's [width + 1, groups] counts of groups, then [width + 1] of all
    int volume;
    int words;
    int section;
    int sections;
    int width;         // most slots of a section
    int groups;        // of GROUP_TILES tiles in the map
};

struct MaskKeysArguments {
    u32* keys_a;
    u32* keys_b;
    u32* values_a;
    u32* values_b;
    u32* state;
    u32* bins;   // [n_bins], made zero
    int* bits;   // [n, columns] bit of every slot of a section in the mask that rows are sorted by
    i64 items;
    i64 n_bins;
    int columns;
    int n;
    int gray_bits;
    int map_bits;
    TileTask tasks[MAX_TASKS];
};

__device__ __forceinline__ int task_of(const TileTask* tasks, int n, i64 number, bool by_tile) {
    int low = 0, high = n - 1;  // the last one that begins there or before
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (number >= (by_tile ? tasks[middle].first_tile : tasks[middle].first_item))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// Words of a row's mask from the first one on, all read at once: every read is a trip to the L2.
__device__ __forceinline__ void read_words(const int* masks, int first, int words, u32 (&values)[WORDS_AT_ONCE]) {
#pragma unroll
    for (int w = 0; w < WORDS_AT_ONCE; ++w) values[w] = first + w < words ? (u32)masks[first + w] : 0u;
}

// Call `visit(column)` for every slot of a section that a row fills.
template <typename Visit>
__device__ __forceinline__ void visit_columns(const int* masks, const TileTask& task, Visit visit) {
    const int sections = task.sections;
    u32 comb = sections == 1 ? 0x7fffffffu : 0;  // a bit for every slot of section 0
    for (int bit = 0; bit < 31 && sections > 1; bit += sections) comb |= 1u << bit;
    const int shift = sections - 31 % sections;
    int first = task.section;  // first slot of the section in a word
    for (int begin = 0; begin < task.words; begin += WORDS_AT_ONCE) {
        u32 values[WORDS_AT_ONCE];
        read_words(masks, begin, task.words, values);
#pragma unroll
        for (int w = 0; w < WORDS_AT_ONCE; ++w) {
            for (u32 rest = values[w] & (comb << first); rest; rest &= rest - 1) {
                const int slot = (begin + w) * 31 + __ffs((int)rest) - 1;
                visit(sections == 1 ? slot : slot / sections);
            }
            first += shift;
            if (first >= sections) first -= sections;
        }
    }
}

struct RowMasksArguments {
    const int* table;  // [rows, K]
    int* masks;        // [rows, words]
    i64 rows;
    int volume;
    int words;
};

// A warp a row: every word is a ballot over 31 slots.
KERNEL(row_masks, RowMasksArguments, 256) {
    i64 row = (i64)blockIdx.x * (blockDim.x / WARP) + warp_index();
    if (row >= a.rows) return;
    for (int w = 0; w < a.words; ++w) {
        int slot = w * 31 + lane_index();
        bool filled = lane_index() < 31 && slot < a.volume && a.table[row * a.volume + slot] >= 0;
        u32 bits = __ballot_sync(FULL_MASK, filled);
        if (lane_index() == 0) a.masks[row * a.words + w] = (int)bits;
    }
}

// A block a section: how often its slots are filled, and so the bits of a mask.
KERNEL(column_bits, MaskKeysArguments, SAMPLED) {
    DYNAMIC_SHARED(shared);
    int* counts = (int*)shared;  // [columns]
    const TileTask& task = a.tasks[blockIdx.x];
    const int columns = (task.volume - task.section + task.sections - 1) / task.sections;
    for (int i = threadIdx.x; i < columns; i += SAMPLED) counts[i] = 0;
    __syncthreads();
    const i64 rows = task.count ? (i64)*task.count : task.rows;
    const i64 step = sampling_step(rows);
    for (i64 row = threadIdx.x * step; row < rows; row += SAMPLED * step)
        visit_columns(task.masks + row * task.words, task, [&](int column) { atomicAdd(&counts[column], 1); });
    __syncthreads();
    assign_bits(counts, columns, a.bits + (i64)blockIdx.x * a.columns);
}

// Keys of all rows; rows without a slot come last.
KERNEL(mask_keys, MaskKeysArguments, 256) {
    __shared__ u32 histogram[MAX_PASSES][RADIX];
    for (int pass = 0; pass < MAX_PASSES; ++pass) histogram[pass][threadIdx.x] = 0;
    __syncthreads();
    int passes = passes_for(a.gray_bits + a.map_bits);
    u32* keys = in_second_buffer(passes, 0) ? a.keys_b : a.keys_a;
    u32* values = in_second_buffer(passes, 0) ? a.values_b : a.values_a;
    i64 step = (i64)gridDim.x * blockDim.x, start = (i64)blockIdx.x * blockDim.x;
    for (i64 bin = start + threadIdx.x; bin < a.n_bins; bin += step) a.bins[bin] = 0;
    for (i64 base = start; base < a.items; base += step) {
        i64 item = base + threadIdx.x;
        bool valid = item < a.items;
        u32 key = 0;
        if (valid) {
            int number = task_of(a.tasks, a.n, item, false);
            const TileTask& task = a.tasks[number];
            i64 row = item - task.first_item;
            const int* bits = a.bits + (i64)number * a.columns;
            u32 mask = 0;
            visit_columns(task.masks + row * task.words, task, [&](int column) { mask |= 1u << bits[column]; });
            u32 rank = gray_rank(mask);
            u32 behind = (rank - 1u) & ((1u << a.gray_bits) - 1u);  // the empty mask has rank 0
            key = ((u32)number << a.gray_bits) | behind;
            keys[item] = key;
            values[item] = (u32)row;
        }
        count_digits(histogram, key, valid, passes);
    }
    finish_histogram(histogram, a.state, passes, (u32)a.items);
}

struct TilesArguments {
    const u32* order;  // [items] rows in the order of the sort
    u32* bins;         // how many tiles have so many slots
    u32* words;        // slots of every tile
    int* counts;       // [tiles] how many they are
    i64 tiles;
    int n;
    TileTask tasks[MAX_TASKS];
};

// A warp a tile: OR of its rows' masks, and how many slots that is.
KERNEL(tile_masks, TilesArguments, 256) {
    i64 tile = (i64)blockIdx.x * (blockDim.x / WARP) + warp_index();
    if (tile >= a.tiles) return;
    const TileTask& task = a.tasks[task_of(a.tasks, a.n, tile, true)];
    const int parts = TILE_ROWS / WARP;
    i64 own = tile - task.first_tile;
    i64 rows[parts];
    bool valid[parts];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
        i64 place = own * TILE_ROWS + part * WARP + lane_index();
        valid[part] = place < task.rows;
        rows[part] = valid[part] ? (i64)a.order[task.first_item + place] : 0;
    }
    int count = 0;
    u32* words = a.words + task.first_word + own * task.words;
    for (int begin = 0; begin < task.words; begin += WORDS_AT_ONCE) {
        u32 values[parts][WORDS_AT_ONCE];
#pragma unroll
        for (int part = 0; part < parts; ++part)
            read_words(task.masks + rows[part] * task.words, begin, valid[part] ? task.words : 0, values[part]);
#pragma unroll
        for (int w = 0; w < WORDS_AT_ONCE; ++w) {
            if (begin + w >= task.words) break;
            u32 bits = 0;
#pragma unroll
            for (int part = 0; part < parts; ++part) bits |= values[part][w];
            bits = __reduce_or_sync(FULL_MASK, bits);
            if (task.sections > 1) {
                bool of_section = ((begin + w) * 31 + lane_index()) % task.sections == task.section;
                bits &= __ballot_sync(FULL_MASK, of_section);
            }
            if (lane_index() == 0) words[begin + w] = bits;
            count += __popc(bits);
        }
    }
    if (lane_index() == 0) {
        i64 group = (tile - task.map_tile) / GROUP_TILES;
        u32* bins = a.bins + task.first_bin;
        a.counts[tile] = count;
        atomicAdd(&bins[(i64)count * task.groups + group], 1u);
        atomicAdd(&bins[(i64)(task.width + 1) * task.groups + count], 1u);
    }
}

// Sum over the threads of a block of tile_lists.
__device__ __forceinline__ u32 list_sum(u32 own) {
    __shared__ u32 warp_sums[LIST_THREADS / WARP];
    own = __reduce_add_sync(FULL_MASK, own);
    if (lane_index() == 0) warp_sums[warp_index()] = own;
    __syncthreads();
    u32 all = 0;
#pragma unroll
    for (int w = 0; w < LIST_THREADS / WARP; ++w) all += warp_sums[w];
    return all;
}

// Tiles of the map with more slots, and those before this one with as many.
__device__ __forceinline__ u32 tiles_before(
    const TileTask& task, const u32* bins, const int* counts, i64 tile, int count) {
    i64 number = tile - task.map_tile, group = number / GROUP_TILES;
    const u32* totals = bins + (i64)(task.width + 1) * task.groups;
    const u32* equal = bins + (i64)count * task.groups;
    u32 before = 0;
    for (int bin = count + 1 + threadIdx.x; bin <= task.width; bin += LIST_THREADS) before += totals[bin];
    for (i64 g = threadIdx.x; g < group; g += LIST_THREADS) before += equal[g];
    for (i64 t = group * GROUP_TILES + threadIdx.x; t < number; t += LIST_THREADS)
        before += counts[task.map_tile + t] == count;
    return list_sum(before);
}

// A block a tile: its output rows, its slots, and the input rows of every slot. A warp reads 32 slots
// of one row after another, and writes 32 rows of one slot after another.
KERNEL(tile_lists, TilesArguments, LIST_THREADS) {
    __shared__ int stage[LIST_THREADS / WARP][WARP][WARP + 1];  // by warp, slot, row
    __shared__ u32 row_masks[TILE_ROWS][WORDS_AT_ONCE];
    i64 tile = blockIdx.x;
    const TileTask& task = a.tasks[task_of(a.tasks, a.n, tile, true)];
    int count = a.counts[tile], lane = lane_index(), warp = warp_index();
    i64 own = tile - task.first_tile;
    i64 place = own * TILE_ROWS + threadIdx.x;
    int row = place < task.rows ? (int)a.order[task.first_item + place] : -1;
    if (task.count && row >= (int)*task.count) row = -1;  // no output is written there
    // rows of a long table fill few of their tile's slots, and lie in many sectors: masks tell which
    const bool masked = task.words > 1 && task.words <= WORDS_AT_ONCE;
    if (masked) {
        u32 values[WORDS_AT_ONCE];
        read_words(task.masks + (i64)max(row, 0) * task.words, 0, row < 0 ? 0 : task.words, values);
#pragma unroll
        for (int w = 0; w < WORDS_AT_ONCE; ++w) row_masks[threadIdx.x][w] = values[w];
    }
    i64 stored = tiles_before(task, a.bins + task.first_bin, a.counts, tile, count);

    int* slots = task.slots + stored * task.width;
    if (warp == 0) {
        const u32* words = a.words + task.first_word + own * task.words;
        int listed = 0;
        for (int w = 0; w < task.words; ++w) {
            u32 bits = words[w];
            if (bits >> lane & 1u) slots[listed + rank_below(bits)] = w * 31 + lane;
            listed += __popc(bits);
        }
        if (lane == 0) task.counts[stored] = count;
    }
    __syncthreads();

    int* lists = task.lists + stored * task.width * TILE_ROWS + threadIdx.x;
    bool filled = task.sections == 1;  // of a map that is one section every row is written
    for (int first = 0; first < count; first += WARP) {
        int listed = min(WARP, count - first);
        int slot = lane < listed ? slots[first + lane] : -1;
        const int word = masked ? max(slot, 0) / 31 : 0, bit = max(slot, 0) - 31 * word;
#pragma unroll 8
        for (int r = 0; r < WARP; ++r) {
            int other = __shfl_sync(FULL_MASK, row, r);
            bool there = slot >= 0 && other >= 0;
            if (masked) there = there && (row_masks[warp * WARP + r][word] >> bit & 1u);
            stage[warp][lane][r] = there ? task.table[(i64)other * task.volume + slot] : -1;
        }
        __syncwarp();
        for (int s = 0; s < listed; ++s) {
            int input = stage[warp][s][lane];
            filled |= input >= 0;
            lists[(i64)(first + s) * TILE_ROWS] = input;
        }
        __syncwarp();
    }
    task.out[stored * TILE_ROWS + threadIdx.x] = filled ? row : -1;
}
