// Native points: neighbours within reach of every output point, each in the kernel slot it lies in.
//
// Source points are sorted by cells of side 2R, so that the box around a centre touches two cells an
// axis. Cells are numbered modulo powers of two: their keys take 32 bits whatever the extent, and a
// point of a cell with the same number is refused by its distance. A thread takes an output row;
// rows are in spatial order, so threads of a warp read the same cells.
//
// Count per (slot, chunk of rows) and per row, scan, fill: no pair is kept that is not within reach.
// Every launch serves many searches; points are sorted once for those of one reach.

#include "radix.cuh"

#define ROWS 32          // output rows of a block: a chunk
#define MAX_TASKS 12
#define AT_ONCE 4        // candidates of a row that are on their way together
#define INSERTED 32      // triplets of a row sorted by insertion; more are sorted by a heap

struct __align__(16) Place {
    float x, y, z;
    int row;
};

struct Cells {
    double inverse[3];  // of the side of a cell
    double reach[3];    // half widths of the box that is searched, a little above the reach
    int bits[3];        // of a cell's number along an axis
    int shift;          // of a cloud's number in what says it
    u64 task;           // in the bits before the cloud
};

// Monotone in the coordinate, the same for both sides of the search.
__device__ __forceinline__ i64 cell_at(const Cells& cells, int axis, double value) {
    return (i64)floor(value * cells.inverse[axis]);
}

__device__ __forceinline__ u64 wrapped(const Cells& cells, int axis, i64 cell) {
    return (u64)cell & ((1ull << cells.bits[axis]) - 1ull);
}

__device__ __forceinline__ u64 key_of(const Cells& cells, u64 cloud, u64 x, u64 y, u64 z) {
    return ((((cells.task | cloud) << cells.bits[0] | x) << cells.bits[1] | y) << cells.bits[2]) | z;
}

struct SortTask {
    const float* points;  // [n, 3]
    const i64* batch;     // [n]
    i64 first, n;         // its items
    u64* crowd;           // points of the cell of every point, summed; zero before
    Cells cells;
};

struct SortArguments {
    SortBuffers sort;
    Place* places;  // [n] in the order of all keys
    i64 n;
    int passes, count;
    SortTask tasks[MAX_TASKS];
};

__device__ __forceinline__ const SortTask& task_of(const SortArguments& a, i64 item) {
    int task = a.count - 1;
    while (a.tasks[task].first > item) --task;
    return a.tasks[task];
}

// Sort keys of the source points, and their digits counted.
KERNEL(cell_keys, SortArguments, 256) {
    write_sort_keys(a.sort, a.n, a.passes, [&](i64 item, u32*) {
        const SortTask& task = task_of(a, item);
        const i64 i = item - task.first;
        u64 part[3];
#pragma unroll
        for (int axis = 0; axis < 3; ++axis)
            part[axis] = wrapped(task.cells, axis, cell_at(task.cells, axis, (double)task.points[3 * i + axis]));
        return key_of(task.cells, (u64)task.batch[i] >> task.cells.shift, part[0], part[1], part[2]);
    });
}

// Points in the order of their cells: candidates of a run lie side by side.
KERNEL(place_points, SortArguments, 256) {
    const i64 item = (i64)blockIdx.x * 256 + threadIdx.x;
    if (item >= a.n) return;
    const SortTask& task = task_of(a, item);
    const u64* keys = a.sort.keys_a + task.first;
    const i64 i = item - task.first, begin = lower_bound(keys, task.n, keys[i]);
    if (begin == i) {  // the first of its cell counts for all
        const u64 own = (u64)(lower_bound(keys, task.n, keys[i] + 1) - i);
        atomicAdd(task.crowd, own * own);
    }
    const i64 row = a.sort.values_a[item] - task.first;
    Place place;
    place.x = task.points[3 * row], place.y = task.points[3 * row + 1], place.z = task.points[3 * row + 2];
    place.row = (int)row;
    a.places[item] = place;
}

struct Search {
    const Place* places;   // [n]
    const u64* keys;       // [n] sorted
    const float* centres;  // [m, 3]
    const i64* batch;      // [m]
    i64 n, m;
    Cells cells;
    float limit[3];        // half widths of the box, or the squared radius in the first
    float edges[3];        // of a kernel cell
    int size[3];           // odd kernel size
    int ball;
    i64 first_chunk, chunks;
    i64 first_row;         // of all searches' rows
    int* counts;           // [slots, chunks] triplets
    const int* starts;     // [slots, chunks] their first position inside the slot
    i64* numbers;          // [slots + 3] first position of every slot; triplets, zero before; crowd
    const i64* crowd;      // beyond `most` nothing is searched, and nothing counted
    i64 most;
};

struct Lists {
    int* in_index;      // [T] by slot
    int* out_index;     // [T]
    int* row_in_index;  // [T] by row
    int* row_slots;     // [T]
    i64* row_offsets;   // [m + 1]
};

struct SearchArguments {
    int* sizes;           // [rows] triplets of every row, counted
    const i64* row_ends;  // [rows + 1] their sums
    int count;
    Search searches[MAX_TASKS];
    Lists lists[MAX_TASKS];
};

__device__ __forceinline__ int search_of_block(const SearchArguments& a) {
    int task = a.count - 1;
    while (a.searches[task].first_chunk > (i64)blockIdx.x) --task;
    return task;
}

// Slot of a candidate, -1 where there is no triplet. Every operation is rounded on its own, as on the
// host: the answer does not depend on the device.
__device__ __forceinline__ int slot_within(const Search& search, const float* centre, const Place& place) {
    const float at[3] = {place.x, place.y, place.z};
    float d[3];
    bool near = true;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        d[axis] = centre[axis] - at[axis];
        near &= search.ball || fabsf(d[axis]) <= search.limit[axis];
    }
    if (search.ball) {
        const float xy = __fadd_rn(__fmul_rn(d[0], d[0]), __fmul_rn(d[1], d[1]));
        near = __fadd_rn(xy, __fmul_rn(d[2], d[2])) <= search.limit[0];
    }
    if (!near) return -1;
    int slot = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        const int half = search.size[axis] / 2;
        // roundf rounds halves away from zero
        const float cell = roundf(__fdiv_rn(-d[axis], search.edges[axis]));
        slot = slot * search.size[axis] + (int)min(max(cell, (float)-half), (float)half) + half;
    }
    return slot;
}

template <typename Visit>
__device__ __forceinline__ void visit_run(const Search& search, const float* centre, u64 low, u64 high, Visit visit) {
    for (i64 i = lower_bound(search.keys, search.n, low);; i += AT_ONCE) {
        u64 keys[AT_ONCE];
        Place places[AT_ONCE];
#pragma unroll
        for (int q = 0; q < AT_ONCE; ++q) {
            const i64 at = min(i + q, search.n - 1);
            keys[q] = search.keys[at];
            places[q] = search.places[at];
        }
#pragma unroll
        for (int q = 0; q < AT_ONCE; ++q) {
            if (i + q >= search.n || keys[q] > high) return;
            const int slot = slot_within(search, centre, places[q]);
            if (slot >= 0) visit(slot, places[q].row);
        }
    }
}

// Call `visit(slot, source row)` for every triplet of an output row: four columns of cells, in each
// one run, or two where the numbers of cells start again.
template <typename Visit>
__device__ __forceinline__ void visit_neighbours(const Search& search, i64 row, Visit visit) {
    float centre[3];
    i64 first[3];
    int more[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        centre[axis] = search.centres[3 * row + axis];
        const double middle = (double)centre[axis], reach = search.cells.reach[axis];
        first[axis] = cell_at(search.cells, axis, middle - reach);
        more[axis] = cell_at(search.cells, axis, middle + reach) > first[axis];
    }
    const u64 cloud = (u64)search.batch[row] >> search.cells.shift;
    const u64 z = wrapped(search.cells, 2, first[2]), next = wrapped(search.cells, 2, first[2] + more[2]);
    for (int step_x = 0; step_x <= more[0]; ++step_x)
        for (int step_y = 0; step_y <= more[1]; ++step_y) {
            const u64 x = wrapped(search.cells, 0, first[0] + step_x);
            const u64 y = wrapped(search.cells, 1, first[1] + step_y);
            const u64 low = key_of(search.cells, cloud, x, y, z), high = key_of(search.cells, cloud, x, y, next);
            visit_run(search, centre, low, low <= high ? high : low, visit);
            if (high < low) visit_run(search, centre, high, high, visit);
        }
}

KERNEL(count_neighbours, SearchArguments, ROWS) {
    DYNAMIC_SHARED(shared);
    int* counts = (int*)shared;  // [slots]
    const Search& search = a.searches[search_of_block(a)];
    const int slots = search.size[0] * search.size[1] * search.size[2];
    for (int slot = threadIdx.x; slot < slots; slot += ROWS) counts[slot] = 0;
    __syncthreads();
    const i64 chunk = blockIdx.x - search.first_chunk, row = chunk * ROWS + threadIdx.x;
    const bool crowded = *search.crowd > search.most;
    int size = 0;
    if (row < search.m) {
        if (!crowded) visit_neighbours(search, row, [&](int slot, int) {
            atomicAdd(&counts[slot], 1);
            ++size;
        });
        a.sizes[search.first_row + row] = size;
    }
    const i64 sum = sum_to_lane((i64)size);
    if (threadIdx.x == ROWS - 1) atomicAdd((u64*)search.numbers + slots + 1, (u64)sum);
    if (threadIdx.x == 0 && chunk == 0) search.numbers[slots + 2] = *search.crowd;
    __syncthreads();
    for (int slot = threadIdx.x; slot < slots; slot += ROWS)
        search.counts[slot * search.chunks + chunk] = counts[slot];
}

// Slot and source of the triplets of a row, compared as one number; sorted where they are kept.
struct Listed {
    int* slots;
    int* sources;

    __device__ __forceinline__ u64 operator[](int i) const { return (u64)slots[i] << 32 | (u32)sources[i]; }

    __device__ __forceinline__ void set(int i, u64 item) const {
        slots[i] = (int)(item >> 32);
        sources[i] = (int)item;
    }
};

__device__ __forceinline__ void sift(const Listed& items, int n, int root) {
    const u64 item = items[root];
    for (int child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && items[child] < items[child + 1]) ++child;
        if (items[child] <= item) break;
        items.set(root, items[child]);
        root = child;
    }
    items.set(root, item);
}

// Ascending, in place, whatever their number.
__device__ __forceinline__ void sort_row(const Listed& items, int n) {
    if (n <= INSERTED) {
        for (int i = 1; i < n; ++i) {
            const u64 item = items[i];
            int to = i;
            for (; to > 0 && items[to - 1] > item; --to) items.set(to, items[to - 1]);
            if (to < i) items.set(to, item);
        }
        return;
    }
    for (int root = n / 2 - 1; root >= 0; --root) sift(items, n, root);
    for (int end = n - 1; end > 0; --end) {
        const u64 largest = items[0];
        items.set(0, items[end]);
        items.set(end, largest);
        sift(items, end, 0);
    }
}

KERNEL(fill_neighbours, SearchArguments, ROWS) {
    const int task = search_of_block(a);
    const Search& search = a.searches[task];
    const Lists& lists = a.lists[task];
    const i64 chunk = blockIdx.x - search.first_chunk, row = chunk * ROWS + threadIdx.x;
    const int slots = search.size[0] * search.size[1] * search.size[2];
    i64 begin = 0;
    int size = 0;
    if (row < search.m) {
        const i64* ends = a.row_ends + search.first_row;
        begin = ends[row] - ends[0];
        lists.row_offsets[row] = begin;
        if (row == search.m - 1) lists.row_offsets[row + 1] = ends[row + 1] - ends[0];
        visit_neighbours(search, row, [&](int slot, int source) {
            lists.row_slots[begin + size] = slot;
            lists.row_in_index[begin + size++] = source;
        });
    }
    const Listed own = {lists.row_slots + begin, lists.row_in_index + begin};
    sort_row(own, size);
    int cursor = 0;
    for (int slot = 0; slot < slots; ++slot) {
        const i64 cell = slot * search.chunks + chunk;
        if (!search.counts[cell]) continue;  // the whole warp agrees
        const int first = cursor;
        while (cursor < size && own.slots[cursor] == slot) ++cursor;
        const int count = cursor - first;
        i64 to = search.numbers[slot] + search.starts[cell] + sum_to_lane(count) - count;
        for (int i = first; i < cursor; ++i, ++to) {
            lists.in_index[to] = own.sources[i];
            lists.out_index[to] = (int)row;
        }
    }
}
