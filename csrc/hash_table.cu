// Neighbour table of voxels by look-ups among the input sites (TorchSparse, section 4.4).
//
// Two kernels: insert -> search. Where entries are mirrored, the table is empty before.
//
// Bytes moved for N sites a side and K slots: 16..64 N bytes of the store cleared; 8 N of keys read
// and N sectors of 32 B written; the look-ups, in sectors of a store that the L2 cache mostly holds;
// 4 N K bytes of the table written. Counted for K = 27, sectors a row:
//     scan at 5 cm      11
//     dense indoor       4
//     uniform noise     15
// So one million rows of a scan write 0.11 GB (26 us at 4.2 TB/s) and read 0.25..0.35 GB from L2.

#include "common.cuh"

// variants: STORE=0 | STORE=1
// variants: KX=0 | KX=3 KY=3 KZ=3 WARPS=3 | KX=3 KY=3 KZ=3 SYMMETRIC=1 WARPS=5 | SYMMETRIC=1

#ifndef SYMMETRIC
#define SYMMETRIC 0  // 1: search the slots below the centre, write both entries of every pair
#endif
#ifndef KX
#define KX 0  // slots along x; 0: sizes are only known at run time, loops stay loops
#endif
#ifndef KY
#define KY 0
#endif
#ifndef KZ
#define KZ 0
#endif
#ifndef WARPS
#define WARPS 4  // warps that share the slots of 32 output rows
#endif

#include "site_store.cuh"

#define THREADS 256  // of a block, of all kernels but search
#define ROWS 32      // output rows of a tile: one a lane

struct InsertArguments {
    Store store;
    i64 n;
};

KERNEL(insert, InsertArguments, THREADS) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (i < a.n) insert_site(a.store, i);
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
