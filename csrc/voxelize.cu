// From points to voxels: the cell of every point, and the features of the points of every voxel.

#include "common.cuh"

#define NOWHERE (1 << 30)  // a cell beyond any packing: of a point that is not finite

struct CellArguments {
    const float* points;   // [n, 3], or null: then
    const double* wide;    // [n, 3]
    const int* batch;      // [n], or null: one cloud
    int* cells;            // [n, 4] batch, x, y, z
    i64 n;
    double size[3];        // of a voxel [m]
};

// floor(p / size) in double: at 1e5 m a float quotient is off by whole voxels.
__device__ __forceinline__ int cell_along(const CellArguments& a, i64 i, int axis) {
    const double at = a.points ? (double)a.points[3 * i + axis] : a.wide[3 * i + axis];
    const double cell = floor(at / a.size[axis]);
    if (!(cell < (double)NOWHERE)) return NOWHERE;  // NaN too
    return cell < -(double)NOWHERE ? -NOWHERE : (int)cell;
}

KERNEL(cells_of_points, CellArguments, 256) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.n) return;
    const int x = cell_along(a, i, 0), y = cell_along(a, i, 1), z = cell_along(a, i, 2);
    ((int4*)a.cells)[i] = {a.batch ? a.batch[i] : 0, x, y, z};
}

#define MEAN 0
#define SUM 1
#define FIRST 2

struct ReduceArguments {
    const float* features;  // [n, channels]
    const u32* order;       // [n] points by row, those of a row as they stand in the input
    const i64* rows;        // [n] row of every point
    const u32* count;       // points that count, or null: then `n`
    float* out;             // [rows, channels], zeroed
    i64 n;
    int channels;
    int kind;
};

// A thread a channel of the first point of every row: it walks along the row's points, so the order
// of the sum is fixed.
KERNEL(reduce_points, ReduceArguments, 256) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 first = index / a.channels, n = a.count ? (i64)*a.count : a.n;
    const int channel = (int)(index - first * a.channels);
    if (first >= n) return;
    const i64 row = a.rows[a.order[first]];
    if (first && a.rows[a.order[first - 1]] == row) return;
    float sum = 0.0f;
    i64 place = first;
    for (; place < n; ++place) {
        const u32 point = a.order[place];
        if (place > first && (a.kind == FIRST || a.rows[point] != row)) break;
        sum += a.features[(i64)point * a.channels + channel];
    }
    a.out[row * a.channels + channel] = a.kind == MEAN ? sum / (float)(place - first) : sum;
}
