// Tiles of rows that share slots, and the input rows they gather step by step, for many maps in one
// sort; what is stored, pcnn/geometry/tile_steps.py says.
//
// Rows are sorted by the Gray code of a mask whose bits are columns (slots) by falling frequency, so
// that the rows of a tile share most of their slots: on scans tiles fill a tenth to a fifth fewer
// slots of 3^3 than by bits in the order of slots, and up to a third fewer of 5^3. Columns without a
// bit of their own share one with others of like frequency. Where slots hold several inputs, rows are
// ordered by the fan-in of their fullest slot first; slots with a second input are columns once more.

#include "radix.cuh"

#define MAX_TASKS 32
#define TILE_ROWS 128
#define GROUP_TILES 128
#define WORDS_AT_ONCE 5  // of a mask: all of a kernel of 5^3 slots
#define SAMPLED 1024     // rows at most whose columns are counted

// Bits of a mask for the most frequent columns, one each, and for all others, where they are more.
#define TABLE_OWN_BITS 9
#define TABLE_FOLDED_BITS 10
#define LIST_OWN_BITS 12
#define LIST_FOLDED_BITS 12
#define LIST_GRAY_BITS (LIST_OWN_BITS + LIST_FOLDED_BITS)
#define LAST_LEVEL 15    // of the fan-in, in 4 bits: rows without an input

// A map, or a section of one: slots `section`, `section + sections`, ... All sections write into the
// tiles of their map.
struct StepTask {
    const int* inputs;       // table [rows, K]; of lists [T] by row, then slot
    const int* filled;       // masks [rows, words]; of lists [T] slots, ascending within a row
    const i64* row_offsets;  // of lists [rows + 1]
    const u32* count;        // rows that hold a site, or null: all of them; spare ones fill no slot
    int* out;                // [tiles, TILE_ROWS]
    int* begin;              // [tiles]
    int* end;                // [tiles]
    int* slots;              // [steps]
    int* listed;             // [steps, TILE_ROWS]
    int* starts;             // of lists [tiles, K + 1, TILE_ROWS]
    int* most;               // of lists [tiles, K] largest fan-in of a slot, in the order of the rows
    i64 rows;
    i64 first_item;          // rows of the tasks before
    i64 first_tile;          // tiles of the tasks before
    i64 map_tile;            // tiles of the maps before
    i64 first_word;          // of the task's [tiles, words] slots of tiles
    i64 first_bin;           // of the map's [width + 1, groups] counts of groups, then [width + 1] of all
    i64 stored;              // of lists: steps that there is room for
    int volume;
    int words;
    int section;
    int sections;
    int width;               // most slots of a section
    int groups;              // of GROUP_TILES tiles in the map
};

struct KeyBuffers {
    u32* keys_a;
    u32* keys_b;
    u32* values_a;  // after the sort: rows in its order
    u32* values_b;
    u32* state;
};

struct StepsArguments {
    KeyBuffers sort;
    u32* bins;    // [n_bins] how many tiles have so many slots, made zero
    u32* words;   // slots of every tile
    int* counts;  // [tiles] steps of every tile, in the order of the rows
    int* bits;    // [n, columns] bit of every column in the mask that rows are sorted by
    i64 items;    // rows of all tasks
    i64 n_bins;
    i64 tiles;
    int columns;
    int n;
    int gray_bits;
    int passes;
    StepTask tasks[MAX_TASKS];
};

__device__ __forceinline__ int task_of(const StepsArguments& a, i64 number, bool by_tile) {
    int low = 0, high = a.n - 1;  // the last one that begins there or before
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (number >= (by_tile ? a.tasks[middle].first_tile : a.tasks[middle].first_item))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

// --- where a row stands -----------------------------------------------------------------------------

__device__ __forceinline__ u32 gray_rank(u32 mask) {
    for (int shift = 1; shift < 32; shift *= 2) mask ^= mask >> shift;
    return mask;
}

// Words of a row's mask from the first one on, all read at once: every read is a trip to the L2.
__device__ __forceinline__ void read_words(const int* masks, int first, int words, u32 (&values)[WORDS_AT_ONCE]) {
#pragma unroll
    for (int w = 0; w < WORDS_AT_ONCE; ++w) values[w] = first + w < words ? (u32)masks[first + w] : 0u;
}

// Call `visit(column)` for every slot of a section that a row of a table fills.
template <typename Visit>
__device__ __forceinline__ void visit_columns(const StepTask& task, i64 row, Visit visit) {
    const int* masks = task.filled + row * task.words;
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

// Call `visit(slot, inputs)` for every slot that a row of a list fills, ascending.
template <typename Visit>
__device__ __forceinline__ void visit_slots(const StepTask& task, i64 row, Visit visit) {
    const i64 end = task.row_offsets[row + 1];
    for (i64 cursor = task.row_offsets[row]; cursor < end;) {
        const int slot = task.filled[cursor];
        int inputs = 1;
        while (++cursor < end && task.filled[cursor] == slot) ++inputs;
        visit(slot, inputs);
    }
}

// Bit of every column of a task, by how often sampled rows fill it: `count(row, counts)` adds them.
template <typename Count>
__device__ __forceinline__ void choose_bits(
    const StepsArguments& a, int columns, int own_bits, int folded_bits, Count count) {
    DYNAMIC_SHARED(sampled);
    int* counts = (int*)sampled;  // [columns]
    const StepTask& task = a.tasks[blockIdx.x];
    int* bits = a.bits + (i64)blockIdx.x * a.columns;
    for (int i = threadIdx.x; i < columns; i += SAMPLED) counts[i] = 0;
    __syncthreads();
    const i64 rows = task.count ? (i64)*task.count : task.rows;
    const i64 step = rows > SAMPLED ? (rows + SAMPLED - 1) / SAMPLED : 1;
    for (i64 row = threadIdx.x * step; row < rows; row += SAMPLED * step) count(task, row, counts);
    __syncthreads();
    for (int column = threadIdx.x; column < columns; column += SAMPLED) {
        const int own = counts[column];
        int rank = 0;
        for (int other = 0; other < columns; ++other)
            rank += counts[other] > own || (counts[other] == own && other < column);
        const bool folded = columns > own_bits + folded_bits && rank >= own_bits;
        bits[column] = folded ? own_bits + (rank - own_bits) * folded_bits / (columns - own_bits) : rank;
    }
}

// A block a section.
KERNEL(table_bits, StepsArguments, SAMPLED) {
    const StepTask& task = a.tasks[blockIdx.x];
    const int columns = (task.volume - task.section + task.sections - 1) / task.sections;
    choose_bits(a, columns, TABLE_OWN_BITS, TABLE_FOLDED_BITS, [](const StepTask& task, i64 row, int* counts) {
        visit_columns(task, row, [&](int column) { atomicAdd(&counts[column], 1); });
    });
}

// A block a map: how often rows fill a slot, and fill it twice.
KERNEL(list_bits, StepsArguments, SAMPLED) {
    const int columns = 2 * a.tasks[blockIdx.x].volume;
    choose_bits(a, columns, LIST_OWN_BITS, LIST_FOLDED_BITS, [](const StepTask& task, i64 row, int* counts) {
        visit_slots(task, row, [&](int slot, int inputs) {
            atomicAdd(&counts[slot], 1);
            if (inputs > 1) atomicAdd(&counts[task.volume + slot], 1);
        });
    });
}

// Sort keys of all rows, `rank_of(task, row, bits)` below the number of their task.
template <typename RankOf>
__device__ __forceinline__ void write_keys(const StepsArguments& a, RankOf rank_of) {
    write_sort_keys(a.sort, a.items, a.passes, [&](i64 item, u32* value) {
        const int number = task_of(a, item, false);
        const StepTask& task = a.tasks[number];
        const i64 row = item - task.first_item;
        *value = (u32)row;
        return (u32)number << a.gray_bits | rank_of(task, row, a.bits + (i64)number * a.columns);
    });
}

// Rows without a slot come last.
KERNEL(table_keys, StepsArguments, 256) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 bin = (i64)blockIdx.x * blockDim.x + threadIdx.x; bin < a.n_bins; bin += step) a.bins[bin] = 0;
    write_keys(a, [&](const StepTask& task, i64 row, const int* bits) {
        u32 mask = 0;
        visit_columns(task, row, [&](int column) { mask |= 1u << bits[column]; });
        return (gray_rank(mask) - 1u) & ((1u << a.gray_bits) - 1u);  // the empty mask has rank 0
    });
}

// Level of the fan-in, then the Gray rank of what a row fills. A level is the number of inputs of the
// fullest slot up to 4, then powers of two: five to eight inputs are level 5, up to sixteen 6, ...
KERNEL(list_keys, StepsArguments, 256) {
    write_keys(a, [](const StepTask& task, i64 row, const int* bits) {
        u32 mask = 0;
        int most = 0;
        visit_slots(task, row, [&](int slot, int inputs) {
            mask |= 1u << bits[slot];
            if (inputs > 1) mask |= 1u << bits[task.volume + slot];
            most = max(most, inputs);
        });
        if (!most) return (u32)LAST_LEVEL << LIST_GRAY_BITS;
        const int level = most <= 4 ? most : min(bits_for((u64)most) + 2, LAST_LEVEL - 1);
        return (u32)level << LIST_GRAY_BITS | gray_rank(mask);
    });
}

// --- how many steps a tile takes --------------------------------------------------------------------

// A warp a tile: OR of its rows' masks, and how many slots that is. How many tiles stand before one is
// counted in groups, so that every block finds its place by itself.
KERNEL(table_counts, StepsArguments, 256) {
    i64 tile = (i64)blockIdx.x * (blockDim.x / WARP) + warp_index();
    if (tile >= a.tiles) return;
    const StepTask& task = a.tasks[task_of(a, tile, true)];
    const int parts = TILE_ROWS / WARP;
    i64 own = tile - task.first_tile;
    i64 rows[parts];
    bool valid[parts];
#pragma unroll
    for (int part = 0; part < parts; ++part) {
        i64 place = own * TILE_ROWS + part * WARP + lane_index();
        valid[part] = place < task.rows;
        rows[part] = valid[part] ? (i64)a.sort.values_a[task.first_item + place] : 0;
    }
    int count = 0;
    u32* words = a.words + task.first_word + own * task.words;
    for (int begin = 0; begin < task.words; begin += WORDS_AT_ONCE) {
        u32 values[parts][WORDS_AT_ONCE];
#pragma unroll
        for (int part = 0; part < parts; ++part)
            read_words(task.filled + rows[part] * task.words, begin, valid[part] ? task.words : 0, values[part]);
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

// Sum over the threads of a block of a tile.
__device__ __forceinline__ u32 tile_sum(u32 own) {
    __shared__ u32 warp_sums[TILE_ROWS / WARP];
    own = __reduce_add_sync(FULL_MASK, own);
    __syncthreads();  // an earlier sum is read
    if (lane_index() == 0) warp_sums[warp_index()] = own;
    __syncthreads();
    u32 all = 0;
#pragma unroll
    for (int w = 0; w < TILE_ROWS / WARP; ++w) all += warp_sums[w];
    return all;
}

// A block a tile: the largest fan-in of every slot, and the steps they take.
KERNEL(list_counts, StepsArguments, TILE_ROWS) {
    DYNAMIC_SHARED(shared);
    int* most = (int*)shared;  // [volume]
    const i64 tile = blockIdx.x;
    const StepTask& task = a.tasks[task_of(a, tile, true)];
    const i64 own = tile - task.first_tile, place = own * TILE_ROWS + threadIdx.x;
    for (int slot = threadIdx.x; slot < task.volume; slot += TILE_ROWS) most[slot] = 0;
    __syncthreads();
    if (place < task.rows)
        visit_slots(task, a.sort.values_a[task.first_item + place], [&](int slot, int inputs) {
            if (most[slot] < inputs) atomicMax(&most[slot], inputs);
        });
    __syncthreads();
    u32 steps = 0;
    for (int slot = threadIdx.x; slot < task.volume; slot += TILE_ROWS) {
        task.most[own * task.volume + slot] = most[slot];
        steps += (u32)most[slot];
    }
    steps = tile_sum(steps);
    if (threadIdx.x == 0) a.counts[tile] = (int)steps;
}

// --- the tiles, by falling number of steps; equal ones keep their order -----------------------------

// Tiles of the map with more slots, and those before this one with as many.
__device__ __forceinline__ u32 tiles_before(const StepsArguments& a, const StepTask& task, i64 tile, int count) {
    const u32* bins = a.bins + task.first_bin;
    i64 number = tile - task.map_tile, group = number / GROUP_TILES;
    const u32* totals = bins + (i64)(task.width + 1) * task.groups;
    const u32* equal = bins + (i64)count * task.groups;
    u32 before = 0;
    for (int bin = count + 1 + threadIdx.x; bin <= task.width; bin += TILE_ROWS) before += totals[bin];
    for (i64 g = threadIdx.x; g < group; g += TILE_ROWS) before += equal[g];
    for (i64 t = group * GROUP_TILES + threadIdx.x; t < number; t += TILE_ROWS)
        before += a.counts[task.map_tile + t] == count;
    return tile_sum(before);
}

// A block a tile: its output rows, its slots, and the input rows of every slot. A warp reads 32 slots
// of one row after another, and writes 32 rows of one slot after another.
KERNEL(table_steps, StepsArguments, TILE_ROWS) {
    __shared__ int stage[TILE_ROWS / WARP][WARP][WARP + 1];  // by warp, slot, row
    __shared__ u32 row_masks[TILE_ROWS][WORDS_AT_ONCE];
    i64 tile = blockIdx.x;
    const StepTask& task = a.tasks[task_of(a, tile, true)];
    int count = a.counts[tile], lane = lane_index(), warp = warp_index();
    i64 own = tile - task.first_tile;
    i64 place = own * TILE_ROWS + threadIdx.x;
    int row = place < task.rows ? (int)a.sort.values_a[task.first_item + place] : -1;
    if (task.count && row >= (int)*task.count) row = -1;  // no output is written there
    // rows of a long table fill few of their tile's slots, and lie in many sectors: masks tell which
    const bool masked = task.words > 1 && task.words <= WORDS_AT_ONCE;
    if (masked) {
        u32 values[WORDS_AT_ONCE];
        read_words(task.filled + (i64)max(row, 0) * task.words, 0, row < 0 ? 0 : task.words, values);
#pragma unroll
        for (int w = 0; w < WORDS_AT_ONCE; ++w) row_masks[threadIdx.x][w] = values[w];
    }
    i64 stored = tiles_before(a, task, tile, count), begin = stored * task.width;

    int* slots = task.slots + begin;
    if (warp == 0) {
        const u32* words = a.words + task.first_word + own * task.words;
        int listed = 0;
        for (int w = 0; w < task.words; ++w) {
            u32 bits = words[w];
            if (bits >> lane & 1u) slots[listed + rank_below(bits)] = w * 31 + lane;
            listed += __popc(bits);
        }
        if (lane == 0) task.begin[stored] = (int)begin;
        if (lane == 1) task.end[stored] = (int)begin + count;
    }
    __syncthreads();

    int* lists = task.listed + begin * TILE_ROWS + threadIdx.x;
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
            stage[warp][lane][r] = there ? task.inputs[(i64)other * task.volume + slot] : -1;
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

// A block a tile: its rows, where the inputs of every slot begin, its steps, and what these gather if
// there is room for all of them.
KERNEL(list_steps, StepsArguments, TILE_ROWS) {
    const i64 tile = blockIdx.x;
    const StepTask& task = a.tasks[task_of(a, tile, true)];
    const i64 own = tile - task.first_tile, tiles = (task.rows + TILE_ROWS - 1) / TILE_ROWS;
    const int count = a.counts[tile];
    u32 before = 0, steps = 0;  // of tiles with more steps, and of those before with as many
    for (i64 t = threadIdx.x; t < tiles; t += TILE_ROWS) {
        const int other = a.counts[task.first_tile + t];
        const bool ahead = other > count || (other == count && t < own);
        before += ahead;
        steps += ahead ? (u32)other : 0u;
    }
    const i64 stored = tile_sum(before), begin = tile_sum(steps);
    const bool listed = begin + count <= task.stored;
    if (threadIdx.x == 0) {
        task.begin[stored] = listed ? (int)begin : -1;
        task.end[stored] = listed ? (int)begin + count : -1;
    }
    const i64 place = own * TILE_ROWS + threadIdx.x;
    const int row = place < task.rows ? (int)a.sort.values_a[task.first_item + place] : -1;
    task.out[stored * TILE_ROWS + threadIdx.x] = row;
    int* starts = task.starts + stored * (task.volume + 1) * TILE_ROWS + threadIdx.x;
    const i64 first = row < 0 ? 0 : task.row_offsets[row], end = row < 0 ? 0 : task.row_offsets[row + 1];
    i64 cursor = first;
    int next = cursor < end ? task.filled[cursor] : -1;
    for (int slot = 0; slot < task.volume; ++slot) {
        starts[(i64)slot * TILE_ROWS] = (int)cursor;
        while (next == slot) next = ++cursor < end ? task.filled[cursor] : -1;
    }
    starts[(i64)task.volume * TILE_ROWS] = (int)end;
    if (!listed) return;

    i64 step = begin;
    cursor = first;
    next = cursor < end ? task.filled[cursor] : -1;
    for (int slot = 0; slot < task.volume; ++slot)
        for (int left = task.most[own * task.volume + slot]; left; --left, ++step) {
            int input = -1;
            if (next == slot) {
                input = task.inputs[cursor];
                next = ++cursor < end ? task.filled[cursor] : -1;
            }
            task.listed[step * TILE_ROWS + threadIdx.x] = input;
            if (threadIdx.x == 0) task.slots[step] = slot;
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
