// Pooling over a neighbour table: maximum, sum or mean of the inputs that fill the slots of a row.

#include "common.cuh"

#define MAX 0
#define SUM 1
#define MEAN 2

struct PoolArguments {
    const float* x;    // [N_in, channels]
    const int* table;  // [rows, volume], -1 where a slot is empty
    float* out;        // [rows, channels]
    i64 rows;
    int channels;
    int volume;
    int kind;
};

// A thread a channel of a row, slot by slot; 0 where there is no input. NaN wins a maximum.
KERNEL(pool_table, PoolArguments, 256) {
    const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 row = index / a.channels;
    if (row >= a.rows) return;
    const int channel = (int)(index - row * a.channels);
    float found = 0.0f;
    int inputs = 0;
    for (int k = 0; k < a.volume; ++k) {
        const int j = a.table[row * a.volume + k];
        if (j < 0) continue;
        const float value = a.x[(i64)j * a.channels + channel];
        if (a.kind != MAX)
            found += value;
        else if (!inputs || value > found || value != value)
            found = found == found ? value : found;
        ++inputs;
    }
    a.out[index] = a.kind == MEAN && inputs ? found / (float)inputs : found;
}
