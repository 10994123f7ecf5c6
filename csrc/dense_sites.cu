// Coarse sites by a bitmap over the box of the cloud: set bits, and count them in order.
//
// Bit ((batch X + x) Y + y) Z + z is set where a coarse cell is occupied, so the order of the bits
// is that of the keys, and a site's row is the number of bits before it. Nothing is sorted; the
// price is a pass over the box, so it pays where the box is small for the number of sites.

#include "common.cuh"
#include "look_back.cuh"

#define LINE_WORDS 16  // 64 bytes share one count of the bits before them
#define THREADS 256

struct Box {
    int low[4];     // lowest coarse cell: batch, x, y, z
    int size[4];    // coarse cells along each
    int stride[3];
    int bits[3];    // of the key's axes
    int batch_bits;
};

struct DenseArguments {
    const i64* keys;   // [n] fine sites
    u32* words;        // [lines * 16], zeroed
    u32* before;       // [lines] bits before a line
    u32* status;       // [tiles], zeroed
    u32* ticket;       // [1], zeroed
    i64* sites;        // [n] keys of the coarse sites
    i64* inverse;      // [n] row above every fine site
    u32* count;        // [1] coarse sites
    i64 n;
    i64 lines;
    Box box;
};

// Number of a fine site's coarse cell in the box.
__device__ __forceinline__ u32 cell_number(const Box& box, i64 key) {
    int shift = box.bits[0] + box.bits[1] + box.bits[2];
    u32 number = (u32)((key >> shift) - box.low[0]);
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        shift -= box.bits[axis];
        int cell = (int)((key >> shift) & ((1ll << box.bits[axis]) - 1)) - (1 << (box.bits[axis] - 1));
        int coarse = floor_divide(cell, box.stride[axis]) - box.low[axis + 1];
        number = number * (u32)box.size[axis + 1] + (u32)coarse;
    }
    return number;
}

// Key of the coarse site above a fine one.
__device__ __forceinline__ i64 coarse_key(const Box& box, i64 key) {
    i64 coarse = key;
    int shift = 0;
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
        int half = 1 << (box.bits[axis] - 1);
        int cell = (int)((key >> shift) & ((1ll << box.bits[axis]) - 1)) - half;
        coarse -= (i64)(cell - floor_divide(cell, box.stride[axis]) * box.stride[axis]) << shift;
        shift += box.bits[axis];
    }
    return coarse;
}

KERNEL(mark_cells, DenseArguments, THREADS) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    // neighbours in the order of the keys often share a word: one atomic for them
    u32 number = i < a.n ? cell_number(a.box, a.keys[i]) : 0xffffffffu;
    u32 word = number >> 5, bit = i < a.n ? 1u << (number & 31) : 0;
    u32 next_word = __shfl_down_sync(FULL_MASK, word, 1), next_bit = __shfl_down_sync(FULL_MASK, bit, 1);
    u32 last_word = __shfl_up_sync(FULL_MASK, word, 1);
    bool joins = lane_index() > 0 && last_word == word;  // the lane before takes this bit along
    bool takes = lane_index() < WARP - 1 && next_word == word;
    bool odd_joins = joins && (lane_index() & 1), even_takes = takes && !(lane_index() & 1);
    if (bit && !odd_joins) atomicOr(&a.words[word], even_takes ? bit | next_bit : bit);
}

// A thread a line: the bits before it.
KERNEL(count_cells, DenseArguments, THREADS) {
    __shared__ u32 ticket, before_tile;
    if (threadIdx.x == 0) ticket = atomicAdd(a.ticket, 1u);
    __syncthreads();
    u32 tile = ticket;
    i64 line = (i64)tile * THREADS + threadIdx.x;
    u32 own = 0;
#pragma unroll
    for (int q = 0; q < LINE_WORDS / 4; ++q) {
        uint4 part = {0, 0, 0, 0};
        if (line < a.lines) part = ((const uint4*)a.words)[line * (LINE_WORDS / 4) + q];
        own += __popc(part.x) + __popc(part.y) + __popc(part.z) + __popc(part.w);
    }
    u32 total;
    u32 row = block_prefix(own, &total);
    if (warp_index() == 0) {
        u32 before = warp_look_back(a.status, tile, total);
        if (lane_index() == 0) before_tile = before;
    }
    __syncthreads();
    if (line < a.lines) a.before[line] = row + before_tile;
    if ((i64)(tile + 1) * THREADS >= a.lines && threadIdx.x == 0) *a.count = before_tile + total;
}

// The row of a site is the number of bits before its own; all sites below write the same key there.
KERNEL(rank_cells, DenseArguments, THREADS) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.n) return;
    i64 key = a.keys[i];
    u32 number = cell_number(a.box, key), word = number >> 5, line = word / LINE_WORDS;
    u32 row = a.before[line] + __popc(a.words[word] & ((1u << (number & 31)) - 1u));
    for (u32 w = line * LINE_WORDS; w < word; ++w) row += __popc(a.words[w]);
    a.inverse[i] = row;
    a.sites[row] = coarse_key(a.box, key);
}
