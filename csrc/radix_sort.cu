// One pass of a stable radix sort of (key, 32-bit value), one read and one write of each item.

#include "radix.cuh"

struct PassArguments {
    void* keys_a;  // of 64 or 32 bits
    void* keys_b;
    u32* values_a;
    u32* values_b;
    u32* state;
    i64 tiles;  // that the look-back words have room for
    int number;  // of the pass
};

// Onesweep (Adinets & Merrill, 2022): rank in the tile, look back for the digit's place, scatter.
template <typename Key>
__device__ __forceinline__ void sort_pass(const PassArguments& a) {
    int passes = (int)a.state[STATE_PASSES];
    u32 n = a.state[STATE_ITEMS];
    if (a.number >= passes || (u64)blockIdx.x * SORT_TILE >= n) return;
    bool second = in_second_buffer(passes, a.number);
    const Key* keys_in = (const Key*)(second ? a.keys_b : a.keys_a);
    const u32* values_in = second ? a.values_b : a.values_a;
    Key* keys_out = (Key*)(second ? a.keys_a : a.keys_b);
    u32* values_out = second ? a.values_a : a.values_b;

    __shared__ u32 counts[8][RADIX];  // by warp, then first place of the warp's items in the digit
    __shared__ u32 tile_start[RADIX];  // first place of a digit in the tile
    __shared__ u32 shift[RADIX];       // from a place in the tile to a place in the output
    __shared__ Key keys[SORT_TILE];
    __shared__ u32 values[SORT_TILE];
    __shared__ u32 ticket;
    int thread = threadIdx.x, warp = warp_index();
    if (thread == 0) ticket = atomicAdd(&a.state[a.number], 1u);
    for (int w = 0; w < 8; ++w) counts[w][thread] = 0;
    __syncthreads();
    u32 tile = ticket;
    u32 first = tile * SORT_TILE + warp * (WARP * SORT_ITEMS) + lane_index();

    Key key[SORT_ITEMS];
    u32 value[SORT_ITEMS], rank[SORT_ITEMS];
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; ++i) {
        u32 index = first + i * WARP;
        // places after the last item sort after all others, and are not read
        key[i] = index < n ? keys_in[index] : ~(Key)0;
        value[i] = index < n ? values_in[index] : 0;
    }
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; ++i) {
        u32 digit = digit_of(key[i], a.number);
        u32 peers = __match_any_sync(FULL_MASK, digit);
        u32 before = counts[warp][digit];
        __syncwarp();
        rank[i] = before + rank_below(peers);
        if (rank_below(peers) == 0) counts[warp][digit] = before + __popc(peers);
        __syncwarp();
    }
    __syncthreads();

    u32 sum = 0, all;
#pragma unroll
    for (int w = 0; w < 8; ++w) {
        u32 own = counts[w][thread];
        counts[w][thread] = sum;
        sum += own;
    }
    u32 start = block_prefix(sum, &all);
    u32* status = a.state + STATE_STATUS + (u64)a.number * a.tiles * RADIX;
    u32 before = look_back(status + thread, tile, RADIX, sum);
    tile_start[thread] = start;
    shift[thread] = a.state[STATE_HISTOGRAM + a.number * RADIX + thread] + before - start;
    __syncthreads();

    // through shared memory, so that items of a digit leave together
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; ++i) {
        u32 digit = digit_of(key[i], a.number);
        u32 place = tile_start[digit] + counts[warp][digit] + rank[i];
        keys[place] = key[i];
        values[place] = value[i];
    }
    __syncthreads();
    u32 valid = min((u32)SORT_TILE, n - tile * SORT_TILE);
#pragma unroll
    for (int i = 0; i < SORT_ITEMS; ++i) {
        u32 place = thread + i * SORT_THREADS;
        if (place < valid) {
            u32 target = shift[digit_of(keys[place], a.number)] + place;
            keys_out[target] = keys[place];
            values_out[target] = values[place];
        }
    }
}

KERNEL(radix_pass, PassArguments, SORT_THREADS) { sort_pass<u64>(a); }

KERNEL(radix_pass_32, PassArguments, SORT_THREADS) { sort_pass<u32>(a); }
