// Two ways to keep the input sites so that a coordinate finds its row.
//
//     HASH  open addressing over packed keys, an entry a site
//     GRID  an array over the bounding box: no collisions, one access, as large as the box

#pragma once

#include "common.cuh"

#define HASH 0
#define GRID 1

#ifndef STORE
#define STORE HASH
#endif
#ifndef GROUP_BITS
#define GROUP_BITS 2  // HASH: entries of 2^GROUP_BITS neighbours along z start in one group
#endif

#define EMPTY (~0ull)  // neither an entry (rows stay below 2^31) nor a key
#define GROUP (1u << GROUP_BITS)

// How a key splits into cells: coordinate fields divided by the tensor stride, biased so that
// every cell is exact and not negative.
struct Cells {
    int shift[3];
    int bits[3];
    int spacing[3];
    int bias[3];
    int batch_shift;
};

__device__ __forceinline__ u32 field_of(const Cells& cells, i64 key, int axis) {
    return (u32)(key >> cells.shift[axis]) & ((1u << cells.bits[axis]) - 1u);
}

__device__ __forceinline__ int cell_of(const Cells& cells, i64 key, int axis) {
    return (int)((field_of(cells, key, axis) + cells.bias[axis]) / (u32)cells.spacing[axis]);
}

// Lowest cell and number of cells of every axis.
struct Box {
    int low[3];
    int size[3];
};

struct Store {
    void* slots;         // HASH: u64 entries, GRID: int cells
    const i64* sources;  // keys of the sites, sorted
    Cells cells;
    Box box;         // GRID
    int hash_shift;  // HASH: leaves as many bits of a hash as number the groups
    u32 capacity_mask;
};

// Where an output row looks: its key, and its cells in units of the input's tensor stride.
struct Site {
    i64 key;
    i64 batch;
    int cell[3];
    bool live;
};

__device__ __forceinline__ Site site_of(const Cells& cells, i64 key, bool live) {
    Site site;
    site.live = live;
    site.key = key;
    site.batch = key >> cells.batch_shift;
#pragma unroll
    for (int axis = STORE == GRID ? 0 : 2; axis < 3; ++axis) site.cell[axis] = cell_of(cells, key, axis);
    return site;
}

// Slots (x, y, z0 ...) of a kernel as seen from an output site.
struct Column {
    i64 key_delta;   // of the first slot
    i64 key_step;    // from one slot to the next
    int cell_delta[3];
    int cell_step;
};

__device__ __forceinline__ u32 hash_of(u32 high, u32 low) {
    u32 h = low ^ high * 0x85ebca6bu;
    h ^= h >> 16;
    h *= 0x7feb352du;
    h ^= h >> 15;
    return h * 0x846ca68bu;
}

// Each way defines insert_site(store, i, n), and search_column: the input rows at `COUNT` slots of
// a column, -1 where there is none.

#if STORE == HASH

// An entry is (low 32 bits of the key, row): 8 bytes for a key of 8 and a row of 4, so that an
// empty or foreign entry is told from one read; a match is confirmed by the key of its row.
__device__ __forceinline__ u64 entry_of(i64 key, int row) { return (u64)(u32)key << 32 | (u32)row; }

__device__ __forceinline__ bool may_be(u64 entry, i64 key) {
    return entry != EMPTY && (u32)(entry >> 32) == (u32)key;
}

// Home of a key: its group is hashed, its place inside the group is not. 2^GROUP_BITS neighbours
// along z so share one sector, and a column of slots reads one or two in place of K_z.
// `z` is the cell, not the coordinate: with a tensor stride the low bits of a coordinate idle.
__device__ __forceinline__ u32 home_of(const Store& store, i64 key, int z) {
    const u32 z_mask = (1u << store.cells.bits[2]) - 1u;
    const u32 h = hash_of((u32)((u64)key >> 32), ((u32)key & ~z_mask) + ((u32)z >> GROUP_BITS));
    return (h >> store.hash_shift) << GROUP_BITS | ((u32)z & (GROUP - 1));
}

// Linear probing that visits the rest of a group before the next one: a sector more only when the
// group is full.
__device__ __forceinline__ u32 place_after(u32 place, u32 home, u32 capacity_mask) {
    const u32 next = (place & ~(GROUP - 1)) | ((place + 1) & (GROUP - 1));
    return (next ^ home) & (GROUP - 1) ? next : (next + GROUP) & capacity_mask;
}

// Keys are unique, so an insertion only looks for room.
__device__ __forceinline__ void insert_site(const Store& store, i64 i) {
    const i64 key = store.sources[i];
    u64* entries = static_cast<u64*>(store.slots);
    const u32 home = home_of(store, key, cell_of(store.cells, key, 2));
    u32 place = home;
    while (atomicCAS(&entries[place], EMPTY, entry_of(key, (int)i)) != EMPTY)
        place = place_after(place, home, store.capacity_mask);
}

// All first reads are in flight before the first is used, and so are the keys that confirm.
template <int COUNT>
__device__ __forceinline__ void search_column(const Store& store, const Site& site, const Column& column,
                                              int (&rows)[COUNT]) {
    const u64* entries = static_cast<const u64*>(store.slots);
    const i64 first_key = site.key + column.key_delta;
    const int first_z = site.cell[2] + column.cell_delta[2];
    u32 home[COUNT];
    u64 entry[COUNT];
    i64 found[COUNT];
#pragma unroll
    for (int z = 0; z < COUNT; ++z) {
        home[z] = home_of(store, first_key + z * column.key_step, first_z + z * column.cell_step);
        entry[z] = site.live ? entries[home[z]] : EMPTY;
    }
#pragma unroll
    for (int z = 0; z < COUNT; ++z)
        found[z] = may_be(entry[z], first_key + z * column.key_step) ? store.sources[(u32)entry[z]] : -1;
#pragma unroll
    for (int z = 0; z < COUNT; ++z) {
        const i64 key = first_key + z * column.key_step;
        u32 place = home[z];
        while (entry[z] != EMPTY && found[z] != key) {
            place = place_after(place, home[z], store.capacity_mask);
            entry[z] = entries[place];
            if (may_be(entry[z], key)) found[z] = store.sources[(u32)entry[z]];
        }
        rows[z] = (int)(u32)entry[z];  // the row, or -1: the low word of EMPTY
    }
}

#elif STORE == GRID

__device__ __forceinline__ i64 line_of(const Box& box, i64 batch, int x, int y) {
    return ((batch * box.size[0] + x) * box.size[1] + y) * box.size[2];
}

__device__ __forceinline__ void insert_site(const Store& store, i64 i) {
    const Box& box = store.box;
    const i64 key = store.sources[i];
    int cell[3];
    for (int axis = 0; axis < 3; ++axis) cell[axis] = cell_of(store.cells, key, axis) - box.low[axis];
    const i64 line = line_of(box, key >> store.cells.batch_shift, cell[0], cell[1]);
    static_cast<int*>(store.slots)[line + cell[2]] = (int)i;
}

template <int COUNT>
__device__ __forceinline__ void search_column(const Store& store, const Site& site, const Column& column,
                                              int (&rows)[COUNT]) {
    const Box& box = store.box;
    const int x = site.cell[0] + column.cell_delta[0] - box.low[0];
    const int y = site.cell[1] + column.cell_delta[1] - box.low[1];
    const int first_z = site.cell[2] + column.cell_delta[2] - box.low[2];
    const bool inside = site.live && (u32)x < (u32)box.size[0] && (u32)y < (u32)box.size[1];
    const int* line = static_cast<const int*>(store.slots) + (inside ? line_of(box, site.batch, x, y) : 0);
#pragma unroll
    for (int slot = 0; slot < COUNT; ++slot) {
        const int z = first_z + slot * column.cell_step;
        rows[slot] = inside && (u32)z < (u32)box.size[2] ? line[z] : -1;
    }
}

#endif
