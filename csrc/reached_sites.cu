// Output sites of a strided or dilating convolution: every site that some (input, slot) reaches
// (TorchSparse, Algorithm 3), as candidates that are then sorted and made unique elsewhere.

#include "key_fields.cuh"
#include "look_back.cuh"

// variants: KX=0 KY=0 KZ=0 | KX=3 KY=3 KZ=3
// variants: KX=3 KY=3 KZ=3 SX=2 SY=2 SZ=2 PX=2 PY=2 PZ=2 | KX=2 KY=2 KZ=2 SX=2 SY=2 SZ=2 PX=2 PY=2 PZ=2
// variants: KX=5 KY=3 KZ=4 SX=2 SY=3 SZ=1 DX=2 DY=1 DZ=1 PX=1 PY=3 PZ=1

#ifndef KX  // 0: size, stride, dilation and period are only known at run time
#define KX 0
#define KY 0
#define KZ 0
#endif
#ifndef SX
#define SX 1
#define SY 1
#define SZ 1
#endif
#ifndef DX
#define DX 1
#define DY 1
#define DZ 1
#endif
#ifndef PX
#define PX 1
#define PY 1
#define PZ 1
#endif

#define THREADS 256

struct Arguments {
    const i64* keys;   // [n] sorted input sites
    i64* candidates;   // [capacity], the first `count` are written, in any order
    u32* count;        // number of candidates that are kept, zero before
    i64 n;
    Cells cells;       // biased so that those divisible by the stride are cells of the output
    int size[3];
    int stride[3];
    int dilation[3];
    int period[3];     // slots from one that passes the modular check to the next
    int padding[3];
    // The volume that candidates lie in, as coordinate fields: from `low`, `span` more at most. All
    // that a key holds, or the volume of the dense output.
    u32 low[3];
    u32 span[3];
};

// Coordinate field of a cell; of one below the layout it is larger than any field in it.
__device__ __forceinline__ u32 field_of(const Arguments& a, int cell, int axis) {
    return (u32)(cell * a.cells.spacing[axis] - a.cells.bias[axis]);
}

__device__ __forceinline__ bool inside(const Arguments& a, int cell, int axis) {
    return field_of(a, cell, axis) - a.low[axis] <= a.span[axis];
}

// First of `own` places in a list, taken with one atomic a block. All threads of the block call it.
__device__ __forceinline__ u32 places_for(u32* count, u32 own) {
    __shared__ u32 start;
    u32 total;
    const u32 before = block_prefix(own, &total);
    if (threadIdx.x == 0) start = total ? atomicAdd(count, total) : 0;
    __syncthreads();
    return start + before;
}

// Slots q of one axis that pass the modular check, stride | cell + padding - dilation q: from the
// first of them every `period`-th, at most `count`. Sizes fold into constants where they are known.
struct Axis {
    int size, stride, dilation, period, count;
    int reach;     // cell + padding
    int first;     // slot, `size` where none passes
    int previous;  // cell + padding of the input before this one

    __device__ __forceinline__ Axis(const Arguments& a, int axis, int k, int s, int d, int p, i64 key, i64 before) {
        size = KX ? k : a.size[axis];
        stride = KX ? s : a.stride[axis];
        dilation = KX ? d : a.dilation[axis];
        period = KX ? p : a.period[axis];
        count = (size + period - 1) / period;
        reach = cell_of(a.cells, key, axis) + a.padding[axis];
        previous = cell_of(a.cells, before, axis) + a.padding[axis];
        first = size;
#pragma unroll
        for (int q = (period < size ? period : size) - 1; q >= 0; --q)
            if ((reach - dilation * q) % stride == 0) first = q;
    }
    __device__ __forceinline__ int cell(int index) const { return reach - dilation * (first + index * period); }
    __device__ __forceinline__ bool valid(int index) const { return first + index * period < size; }
    // whether some slot takes the previous input to the same cell
    __device__ __forceinline__ bool repeated(int index) const {
        const int distance = previous - cell(index);
        return distance >= 0 && distance <= dilation * (size - 1) && distance % dilation == 0;
    }
};

// Call visit(key) for every candidate of input i, without those of input i - 1.
template <typename Visit>
__device__ __forceinline__ void visit_candidates(const Arguments& a, i64 i, Visit visit) {
    const i64 key = a.keys[i], before = i ? a.keys[i - 1] : -1;
    // Inputs next to each other in the sorted list reach many sites in common. The second one
    // leaves those out: arithmetic here is cheaper than a longer list to sort.
    const bool neighbours = i && key >> BATCH_SHIFT == before >> BATCH_SHIFT;
    const Axis x(a, 0, KX, SX, DX, PX, key, before);
    const Axis y(a, 1, KY, SY, DY, PY, key, before);
    const Axis z(a, 2, KZ, SZ, DZ, PZ, key, before);
    const i64 batch = key >> BATCH_SHIFT << BATCH_SHIFT;
#pragma unroll
    for (int p = 0; p < x.count; ++p) {
        const bool x_valid = x.valid(p) && inside(a, x.cell(p), 0);
        const bool x_repeated = neighbours && x.repeated(p);
        const i64 plane = batch | (i64)field_of(a, x.cell(p), 0) << 2 * AXIS_BITS;
#pragma unroll
        for (int q = 0; q < y.count; ++q) {
            const bool y_valid = x_valid && y.valid(q) && inside(a, y.cell(q), 1);
            const bool y_repeated = x_repeated && y.repeated(q);
            const i64 line = plane | (i64)field_of(a, y.cell(q), 1) << AXIS_BITS;
#pragma unroll
            for (int r = 0; r < z.count; ++r)
                if (y_valid && z.valid(r) && inside(a, z.cell(r), 2) && !(y_repeated && z.repeated(r)))
                    visit(line | (i64)field_of(a, z.cell(r), 2));
        }
    }
}

KERNEL(reach, Arguments, THREADS) {
    const i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    // visited twice, to count and to write: cheaper than holding an unknown number of keys
    u32 own = 0;
    if (i < a.n) visit_candidates(a, i, [&](i64) { ++own; });
    i64* out = a.candidates + places_for(a.count, own);
    if (i < a.n) visit_candidates(a, i, [&](i64 key) { *out++ = key; });
}
