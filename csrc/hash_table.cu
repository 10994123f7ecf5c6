// Neighbour table of voxels by look-ups among the input sites (TorchSparse, section 4.4).
//
// Two kernels: insert -> search. Where entries are mirrored, the table is empty before.
//
// Sectors of 32 B that a row reads for K = 27: 11 of a scan at 5 cm, 4 dense indoors, 15 of noise.

#include "key_fields.cuh"

// variants: STORE=0 | STORE=1
// variants: KX=0 KY=0 KZ=0 | KX=3 KY=3 KZ=3 WARPS=3 | KX=3 KY=3 KZ=3 SYMMETRIC=1 WARPS=5 | SYMMETRIC=1

#ifndef SYMMETRIC
#define SYMMETRIC 0  // 1: search the slots below the centre, write both entries of every pair
#endif
#ifndef KX
#define KX 0  // slots along x; 0: sizes are only known at run time, loops stay loops
#define KY 0
#define KZ 0
#endif
#ifndef WARPS
#define WARPS 4  // warps that share the slots of 32 output rows
#endif

// Two ways to keep the input sites so that a coordinate finds its row: open addressing over packed
// keys, an entry a site; an array over the bounding box, one access, as large as the box.
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
    site.batch = key >> BATCH_SHIFT;
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

// Each way defines insert_site(store, i), and search_column: the input rows at `COUNT` slots of a
// column, -1 where there is none.

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
    const u32 z_mask = (1u << AXIS_BITS) - 1u;
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
    const i64 line = line_of(box, key >> BATCH_SHIFT, cell[0], cell[1]);
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

#define THREADS 256  // of a block, of all kernels but search
#define ROWS 32      // output rows of a tile: one a lane

struct InsertArguments {
    Store store;
    u64* counts;  // [K], made zero for the search
    i64 n;
    int volume;   // K
};

KERNEL(insert, InsertArguments, THREADS) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i < a.n) insert_site(a.store, i);
    for (i64 slot = i; slot < a.volume; slot += (i64)gridDim.x * THREADS) a.counts[slot] = 0;
}

struct SearchArguments {
    Store store;
    const i64* targets;  // [n_out]
    int* table;          // [n_out, K]
    u64* counts;         // [K]
    i64 n_out;
    i64 origin;        // key delta of slot (0, 0, 0)
    i64 step[3];       // what one slot along an axis adds to it
    int first[3];      // cell of slot (0, 0, 0) from the output's: minus the padding
    int dilation[3];   // cells from one slot to the next
    int size[3];
    int pass_slots;  // slots that the shared tile holds
};

__device__ __forceinline__ Column column_at(const SearchArguments& a, int x, int y, int z) {
    Column column;
    column.key_delta = a.origin + x * a.step[0] + y * a.step[1] + z * a.step[2];
    column.key_step = a.step[2];
    column.cell_delta[0] = a.first[0] + x * a.dilation[0];
    column.cell_delta[1] = a.first[1] + y * a.dilation[1];
    column.cell_delta[2] = a.first[2] + z * a.dilation[2];
    column.cell_step = a.dilation[2];
    return column;
}

// Take down what a warp found in one slot for 32 rows; the slot belongs to this warp.
__device__ __forceinline__ void note(const SearchArguments& a, int* place, u32* hits, i64 row, int found,
                                     int mirrored, int volume) {
    *place = found;
    const u32 filled = __ballot_sync(FULL_MASK, found >= 0);
    if (lane_index() == 0) *hits += __popc(filled);
#if SYMMETRIC
    // (i, j, k) and (j, i, K - 1 - k): the other entry lies in a row of some other block
    if (found >= 0) a.table[(i64)found * volume + mirrored] = (int)row;
#endif
}

// Tiles of 32 output rows: a lane holds a row, the warps share the slots, and the results meet in
// shared memory, from where they leave as whole lines. Blocks take many tiles, so that each counter
// gets one atomic a block.
KERNEL(search, SearchArguments, WARPS * 32) {
    DYNAMIC_SHARED(bytes);
#if KX
    constexpr int volume = KX * KY * KZ;
    constexpr int pass_slots = SYMMETRIC ? volume - volume / 2 : volume;  // one pass
#else
    const int size_y = a.size[1], size_z = a.size[2], volume = a.size[0] * size_y * size_z;
    const int pass_slots = a.pass_slots;
#endif
    const int searched = SYMMETRIC ? volume / 2 : volume;  // slots
    // columns of a tile; the centre needs no search (an even dilation may do without a centre)
    const int written = SYMMETRIC ? volume - searched : volume;
    const int pitch = pass_slots | 1;  // odd: 32 rows of one slot lie in 32 banks
    int* tile = reinterpret_cast<int*>(bytes);                // [ROWS, pitch]
    u32* hits = reinterpret_cast<u32*>(tile + ROWS * pitch);  // [pass_slots]
    const int lane = lane_index(), warp = warp_index();
    const i64 tiles = (a.n_out + ROWS - 1) / ROWS;

    // one pass, unless the kernel is so large that a tile of all its slots does not fit
    for (int first = 0; first < written; first += pass_slots) {
        const int last = min(first + pass_slots, written), width = last - first;
        for (int k = threadIdx.x; k < width; k += WARPS * 32) hits[k] = 0;
        __syncthreads();
        const i64 row_step = (i64)gridDim.x * ROWS;
        i64 row = (i64)blockIdx.x * ROWS + lane;
        i64 next = row < a.n_out ? a.targets[row] : 0;
        for (i64 t = blockIdx.x; t < tiles; t += gridDim.x, row += row_step) {
            const i64 first_row = row - lane;
            const Site site = site_of(a.store.cells, next, row < a.n_out);
            // the next tile's keys are on their way while this one is searched
            next = row + row_step < a.n_out ? a.targets[row + row_step] : 0;
            int* own = tile + lane * pitch - first;  // row of the tile, by slot
#if KX
            for (int column = warp; column * KZ < searched; column += WARPS) {
                int found[KZ];
                search_column(a.store, site, column_at(a, column / KY, column % KY, 0), found);
#pragma unroll
                for (int z = 0; z < KZ; ++z) {
                    const int slot = column * KZ + z;
                    // the centre's column of a symmetric kernel is searched whole, used by half
                    if (slot < searched)
                        note(a, own + slot, hits + slot, row, found[z], volume - 1 - slot, volume);
                }
            }
#else
            for (int slot = first + warp; slot < min(last, searched); slot += WARPS) {
                int found[1];
                const int column = slot / size_z;
                const Column single = column_at(a, column / size_y, column % size_y, slot % size_z);
                search_column(a.store, site, single, found);
                note(a, own + slot, hits + slot - first, row, found[0], volume - 1 - slot, volume);
            }
#endif
            const int rows = (int)min((i64)ROWS, a.n_out - first_row);
#if SYMMETRIC
            // a site is its own neighbour at the centre
            if (warp == WARPS - 1 && searched < last) {
                own[searched] = site.live ? (int)row : -1;
                if (lane == 0) hits[searched - first] += rows;
            }
#endif
            __syncthreads();

            for (int place = threadIdx.x; place < rows * width; place += WARPS * 32) {
                const int r = place / width, k = place - r * width;
                a.table[(first_row + r) * volume + first + k] = tile[r * pitch + k];
            }
            __syncthreads();  // the tile is free again
        }
        for (int k = threadIdx.x; k < width; k += WARPS * 32) {
            const int slot = first + k, mirrored = volume - 1 - slot;
            if (hits[k]) {
                atomicAdd(&a.counts[slot], (u64)hits[k]);
                if (SYMMETRIC && mirrored != slot) atomicAdd(&a.counts[mirrored], (u64)hits[k]);
            }
        }
        __syncthreads();
    }
}
