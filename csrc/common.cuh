// Shared by all kernel files: integer names, the kernel declaration, small arithmetic.
//
// A kernel takes one struct of arguments, passed by value and named `a`:
//     struct FillArguments { int* out; i64 n; int value; };
//     KERNEL(fill, FillArguments, 256) { ... a.out ... }
// The third argument is the number of threads of a block.

#pragma once

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#define WARP 32
#define FULL_MASK 0xffffffffu

// 16 bytes that move in one instruction, where an address is a multiple of 16.
struct __align__(16) Quad {
    int x, y, z, w;
};

#ifndef PCNN_EMULATED

#define KERNEL(name, Arguments, threads) \
    extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Arguments a)

// Shared memory whose size the launch decides, 16-byte aligned.
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

#endif  // PCNN_EMULATED

__device__ __forceinline__ int lane_index() { return threadIdx.x & (WARP - 1); }
__device__ __forceinline__ int warp_index() { return threadIdx.x / WARP; }

// Quotient rounded down, also where the value is negative.
__device__ __forceinline__ int floor_divide(int value, int divisor) {
    int quotient = value / divisor;
    return quotient - (value % divisor < 0);
}

// Number of set bits of a ballot below this lane.
__device__ __forceinline__ int rank_below(u32 ballot) {
    return __popc(ballot & ((1u << lane_index()) - 1u));
}

// Sum of a value over the lanes up to this one.
template <typename Value>
__device__ __forceinline__ Value sum_to_lane(Value value) {
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        const Value other = __shfl_up_sync(FULL_MASK, value, step);
        if (lane_index() >= step) value += other;
    }
    return value;
}

// Position of the first of `n` sorted keys that is not less than `query`.
template <typename Key>
__device__ __forceinline__ i64 lower_bound(const Key* keys, i64 n, Key query) {
    i64 low = 0, high = n;
    while (low < high) {
        i64 middle = (low + high) >> 1;
        if (keys[middle] < query)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
