// The smallest kernel: proves that sources compile here, and run.

#include "common.cuh"

struct FillArguments {
    int* out;   // [n]
    i64 n;
    int value;
};

KERNEL(fill, FillArguments, 256) {
    i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n) a.out[i] = a.value;
}
