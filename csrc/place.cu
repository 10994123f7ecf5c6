// Tensors into memory of fixed size: each is copied, and what is spare behind it is written.

#include "common.cuh"

#define MAX_PARTS 64
#define WORDS 4096  // of a block
#define THREADS 256
#define TILE_ROWS 128

#define KEPT 0    // what is spare stays as it is
#define FILLED 1  // one value
#define PLACES 2  // tiles of rows: spare places, which are negative, and spare tiles hold spare rows

struct PlacePart {
    const u32* source;  // [words] of 32 bits
    u32* own;           // [room]
    i64 words;
    i64 room;           // that are written
    u32 spare[2];       // the value, of 64 bits or twice the same
    int kind;
    u32 first;          // row of the first place of the tile with spare ones
    i64 first_block;
};

struct PlaceArguments {
    PlacePart parts[MAX_PARTS];
    i64 n;
};

KERNEL(place, PlaceArguments, THREADS) {
    int low = 0, high = (int)a.n - 1;  // the last part that begins at this block or before
    while (low < high) {
        const int middle = (low + high + 1) >> 1;
        if (a.parts[middle].first_block <= blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    const PlacePart& part = a.parts[low];
    const i64 begin = ((i64)blockIdx.x - part.first_block) * WORDS;
    const bool aligned = (((u64)part.source | (u64)part.own) & 15) == 0;
    if (aligned && part.kind < PLACES && begin + WORDS <= part.words) {
        const int4* source = (const int4*)(part.source + begin) + threadIdx.x;
        int4* own = (int4*)(part.own + begin) + threadIdx.x;
        int4 values[WORDS / THREADS / 4];
#pragma unroll
        for (int k = 0; k < WORDS / THREADS / 4; ++k) values[k] = source[k * THREADS];
#pragma unroll
        for (int k = 0; k < WORDS / THREADS / 4; ++k) own[k * THREADS] = values[k];
        return;
    }
    const i64 end = begin + WORDS < part.room ? begin + WORDS : part.room;
    for (i64 i = begin + threadIdx.x; i < end; i += THREADS) {
        u32 value;
        if (i < part.words) {
            value = part.source[i];
            if (part.kind == PLACES && (int)value < 0) value = part.first + (u32)(i % TILE_ROWS);
        } else {
            value = part.kind == PLACES ? (u32)i : part.spare[i & 1];
        }
        part.own[i] = value;
    }
}
