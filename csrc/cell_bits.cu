// Sites of coarse levels without a sort: a bit for every coarse cell of the cloud's box.
//
// Bits of a level stand in the order of packed keys, so its sites are its set bits, and the row of a
// site is the number of set bits before its own. Levels stand one behind another, in whole chunks.
// Rows of the finest level write the sites: where many bits of a word are set, a thread that walked
// along them would be waited for.

#include "key_fields.cuh"
#include "look_back.cuh"

#define THREADS 256
#define SPAN 16                  // words of a thread, whose first site is remembered
#define CHUNK (SPAN * THREADS)   // words of a block

struct BitsArguments {
    const i64* keys;       // [n] of the finest level
    const u32* count;      // of them on the device, or null: n
    const Extent* extent;  // on the device, or null: known
    u32* bits;             // [words], zeroed
    u32* status;           // [words / CHUNK], zeroed
    u32* ticket;           // zeroed
    u32* ranks;            // [words / SPAN] sites of the level before every span
    u32* needed;           // words that the levels take; of a known extent written if it is exceeded
    i64* unique_keys;      // [levels, n]
    u32* first;            // [levels, n] a row of the finest level inside every site, or null
    u32* inverse;          // [levels, n] site of every row of the finest level, or null:
    i64* above;            // [levels, n] the same
    u32* counts;           // [levels] sites
    Extent known;          // that the host tells of: some keys may lie outside of it
    i64 n;
    i64 words;
    int clouds;
    int levels;
    Stride strides[MAX_LEVELS];
    u32 rooms[MAX_LEVELS];  // rows that what follows has room for: no inverse leads beyond them
};

// The cells of one level: from the lowest one on, in chunks of bits.
struct CellBox {
    int low[4];
    u32 size[4];  // batch, x, y, z
    int shift[4];  // that divides by the stride, -1 where it is no power of two
    u32 first_chunk;
    u32 chunks;
};

struct Boxes {
    CellBox level[MAX_LEVELS];
    u32 chunks;
    bool fit;
};

// Boxes of all levels; every thread of a block calls it.
__device__ __forceinline__ void find_boxes(const BitsArguments& a, Boxes& boxes) {
    if ((int)threadIdx.x < a.levels) {
        CellBox& box = boxes.level[threadIdx.x];
        const Extent& extent = a.extent ? *a.extent : a.known;
        box.low[0] = box.shift[0] = 0;
        box.size[0] = (u32)a.clouds;
        u64 cells = (u64)a.clouds;
#pragma unroll
        for (int f = 1; f < 4; ++f) {
            const int step = a.strides[threadIdx.x].axis[f - 1];
            box.shift[f] = (step & (step - 1)) == 0 ? __ffs(step) - 1 : -1;
            const bool some = extent.above[f] > 0;
            box.low[f] = some ? floor_divide(AXIS_HALF - (int)extent.below[f], step) : 0;
            box.size[f] = some ? (u32)(floor_divide((int)extent.above[f] - 1 - AXIS_HALF, step) - box.low[f] + 1) : 1u;
            cells = min(cells * box.size[f], 1ull << 42);  // beyond any memory
        }
        box.chunks = (u32)((cells + CHUNK * 32 - 1) / (CHUNK * 32));
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u32 before = 0;
        for (int level = 0; level < a.levels; ++level) {
            boxes.level[level].first_chunk = before;
            before += boxes.level[level].chunks;
        }
        boxes.chunks = before;
        const u32 clouds = a.extent ? a.extent->above[0] : a.known.above[0];
        boxes.fit = (i64)before * CHUNK <= a.words && clouds <= (u32)a.clouds;
    }
    __syncthreads();
}

// Key of a row, if there is one; a negative number if there is not, or no box holds it.
__device__ __forceinline__ i64 key_inside(const BitsArguments& a, i64 row) {
    if (row >= (a.count ? (i64)*a.count : a.n)) return -1;
    const i64 key = a.keys[row];
    if (a.extent) return key;
    bool inside = true;
#pragma unroll
    for (int f = 0; f < 4; ++f) {
        const u32 field = field_of(key, f);
        inside &= field < a.known.above[f] && (1u << field_bits(f)) - field <= a.known.below[f];
    }
    if (!inside) *a.needed = 0x7fffffffu;
    return inside ? key : -1;
}

// Coarse cell of a cell along field `f`, in cells of the level.
__device__ __forceinline__ int coarse_of(const BitsArguments& a, const CellBox& box, int level, int f, int cell) {
    return box.shift[f] < 0 ? floor_divide(cell, a.strides[level].axis[f - 1]) : cell >> box.shift[f];
}

// Bit of the coarse cell of a key.
__device__ __forceinline__ u32 bit_of(const BitsArguments& a, const CellBox& box, int level, i64 key) {
    u32 bit = field_of(key, 0);
#pragma unroll
    for (int f = 1; f < 4; ++f) {
        const int coarse = coarse_of(a, box, level, f, coordinate_of(key, f));
        bit = bit * box.size[f] + (u32)(coarse - box.low[f]);
    }
    return bit;
}

// Packed key of the site that a key lies in.
__device__ __forceinline__ i64 site_of(const BitsArguments& a, const CellBox& box, int level, i64 key) {
    i64 site = field_of(key, 0);
#pragma unroll
    for (int f = 1; f < 4; ++f) {
        const int coarse = coarse_of(a, box, level, f, coordinate_of(key, f));
        site = site << AXIS_BITS | (i64)(coarse * a.strides[level].axis[f - 1] + AXIS_HALF);
    }
    return site;
}

// True if cells of a level are whole cells of the level before.
__device__ __forceinline__ bool is_nested(const BitsArguments& a, int level) {
    bool nested = level > 0;
    for (int axis = 0; axis < 3 && nested; ++axis)
        nested = a.strides[level].axis[axis] % a.strides[level - 1].axis[axis] == 0;
    return nested;
}

// A thread a row of the finest level. Of the rows in a cell the one that marks it goes on to the
// cell above: few words of a coarse level would otherwise be waited for by all rows.
KERNEL(mark_cells, BitsArguments, THREADS) {
    __shared__ Boxes boxes;
    find_boxes(a, boxes);
    const i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row == 0 && a.extent) *a.needed = min(boxes.chunks, 0x7fffffffu / CHUNK) * CHUNK;
    if (!boxes.fit) return;
    const i64 key = key_inside(a, row);
    const bool valid = key >= 0;
    bool marked = valid;
    for (int level = 0; level < a.levels; ++level) {
        const CellBox& box = boxes.level[level];
        const u32 bit = bit_of(a, box, level, key), own = 1u << (bit & 31);
        const u32 before = __shfl_up_sync(FULL_MASK, bit, 1);  // of rows in order, often the same cell
        if (!is_nested(a, level)) marked = valid && (lane_index() == 0 || before != bit);
        u32* word = a.bits + (i64)box.first_chunk * CHUNK + bit / 32;
        marked = marked && !(peek(word) & own) && !(atomicOr(word, own) & own);
    }
}

// A block a chunk: how many sites of the level stand before every span.
KERNEL(count_bits, BitsArguments, THREADS) {
    __shared__ Boxes boxes;
    __shared__ u32 ticket, before_chunk;
    find_boxes(a, boxes);
    if (!boxes.fit) {
        if (blockIdx.x == 0 && (int)threadIdx.x < a.levels) a.counts[threadIdx.x] = 0;
        return;
    }
    if (blockIdx.x >= boxes.chunks) return;
    if (threadIdx.x == 0) ticket = atomicAdd(a.ticket, 1u);
    __syncthreads();
    const u32 chunk = ticket;
    int level = 0;
    while (level + 1 < a.levels && chunk >= boxes.level[level + 1].first_chunk) ++level;
    const CellBox& box = boxes.level[level];
    const i64 span = (i64)chunk * THREADS + threadIdx.x;
    const u32* words = a.bits + span * SPAN;
    u32 own = 0;
#pragma unroll
    for (int w = 0; w < SPAN; w += 4) {
        const int4 four = *(const int4*)(words + w);
        own += __popc((u32)four.x) + __popc((u32)four.y) + __popc((u32)four.z) + __popc((u32)four.w);
    }
    u32 total;
    const u32 rank = block_prefix(own, &total);
    const u32 place = chunk - box.first_chunk;
    if (warp_index() == 0) {
        const u32 before = warp_look_back(a.status + box.first_chunk, place, total);
        if (lane_index() == 0) before_chunk = before;
    }
    __syncthreads();
    a.ranks[span] = before_chunk + rank;
    if (threadIdx.x == 0 && place == box.chunks - 1) a.counts[level] = before_chunk + total;
}

// A thread a row of the finest level, level by level: its site; and the spare rows of the level.
// Rows of one site write the same key.
KERNEL(rows_of_cells, BitsArguments, THREADS) {
    __shared__ Boxes boxes;
    find_boxes(a, boxes);
    const i64 blocks = (a.n + THREADS - 1) / THREADS;
    const int level = (int)(blockIdx.x / blocks);
    const i64 row = (blockIdx.x - level * blocks) * THREADS + threadIdx.x;
    if (row >= a.n) return;
    if (a.first && row >= (i64)a.counts[level]) {
        a.unique_keys[level * a.n + row] = SENTINEL;
        a.first[level * a.n + row] = 0;
    }
    u32 site = 0;
    const i64 key = boxes.fit ? key_inside(a, row) : -1;
    if (key >= 0) {
        const CellBox& box = boxes.level[level];
        const u32 bit = bit_of(a, box, level, key);
        const u32 word = box.first_chunk * CHUNK + bit / 32, span = word / SPAN;
        const int4* words = (const int4*)(a.bits + (i64)span * SPAN);
        u32 own = (bit & 31) + 32 * (word % SPAN);  // bits of the span before this one
        site = a.ranks[span];
#pragma unroll
        for (int w = 0; w < SPAN / 4; ++w) {
            const int4 four = words[w];
            const u32 values[4] = {(u32)four.x, (u32)four.y, (u32)four.z, (u32)four.w};
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const u32 here = min(own, 32u);
                site += __popc(values[part] & (here == 32 ? 0xffffffffu : (1u << here) - 1u));
                own -= here;
            }
        }
        a.unique_keys[level * a.n + site] = site_of(a, box, level, key);
        if (a.first) a.first[level * a.n + site] = (u32)row;  // any of the site's rows will do
        site = min(site + 1, a.rooms[level]) - 1;
    }
    if (a.inverse)
        a.inverse[level * a.n + row] = site;
    else
        a.above[level * a.n + row] = (i64)site;
}
