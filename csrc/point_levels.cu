// Coarser levels of native points: of every coarse cell the point nearest to its centre. Which cells there are, levels.cu says. Distances are sums of squares in the order x, y, z,
// one rounding an operation: every device and every run chooses the same rows.

#include "key_fields.cuh"

struct PointLevelArguments {
    const float* points;  // [n, 3] of the finer level
    const u32* first;     // [n] a finest row in the cell of every finer point; null: they are the finest
    const u32* site;      // [finest] coarse row of every finest row
    const i64* keys;      // [m] coarse sites, in cells of the finest level
    const double* start;  // [clouds, 3] where cells begin, relative to the origin of the cloud
    i64* inverse;         // [n] coarse row of every finer point
    u64* least;           // [m] squared distance of the nearest one, all bits set before
    u64* chosen;          // [m] its row, all bits set before
    float* coarse;        // [m, 3]
    i64* coarse_keys;     // [m] in cells of the coarse level
    i64 n, m;
    double size[3];       // of a coarse cell [m]
    int stride[3];        // of the coarse level, in cells of the finest
};

// Cell of a coarse site along an axis, and its centre.
__device__ __forceinline__ int coarse_cell(const PointLevelArguments& a, i64 key, int axis) {
    return coordinate_of(key, axis + 1) / a.stride[axis];  // sites are multiples of the stride
}

__device__ __forceinline__ double centre_of(const PointLevelArguments& a, i64 key, int axis) {
    const i64 cloud = key >> BATCH_SHIFT;
    const double cell = (double)coarse_cell(a, key, axis);
    return __dadd_rn(__dmul_rn(__dadd_rn(cell, 0.5), a.size[axis]), a.start[3 * cloud + axis]);
}

__device__ __forceinline__ u64 squared_distance(const PointLevelArguments& a, i64 row, i64 site) {
    double square[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        const double middle = centre_of(a, a.keys[site], axis);
        const double d = __dadd_rn((double)a.points[3 * row + axis], -middle);
        square[axis] = __dmul_rn(d, d);
    }
    // not negative: its bits are in the order of its value
    return (u64)__double_as_longlong(__dadd_rn(__dadd_rn(square[0], square[1]), square[2]));
}

KERNEL(nearest_distances, PointLevelArguments, 256) {
    const i64 row = (i64)blockIdx.x * 256 + threadIdx.x;
    if (row >= a.n) return;
    const i64 site = a.site[a.first ? (i64)a.first[row] : row];
    a.inverse[row] = site;
    atomicMin(&a.least[site], squared_distance(a, row, site));
}

// Of equally near points the lowest row.
KERNEL(nearest_rows, PointLevelArguments, 256) {
    const i64 row = (i64)blockIdx.x * 256 + threadIdx.x;
    if (row >= a.n) return;
    const i64 site = a.inverse[row];
    if (squared_distance(a, row, site) == a.least[site]) atomicMin(&a.chosen[site], (u64)row);
}

KERNEL(place_level, PointLevelArguments, 256) {
    const i64 site = (i64)blockIdx.x * 256 + threadIdx.x;
    if (site >= a.m) return;
    const i64 key = a.keys[site];
    i64 packed = key >> BATCH_SHIFT;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        packed = packed << AXIS_BITS | (i64)(coarse_cell(a, key, axis) + AXIS_HALF);
        a.coarse[3 * site + axis] = a.points[3 * (i64)a.chosen[site] + axis];
    }
    a.coarse_keys[site] = packed;
}
