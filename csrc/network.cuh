// One launch for many maps: the arguments of each, and which of them a block belongs to.

#pragma once
#include "common.cuh"

#define MAX_MAPS 14

template <typename Arguments>
struct Network {
    Arguments maps[MAX_MAPS];
    int ends[MAX_MAPS];  // blocks of a map and of those before it
    int n;

    // The map of this block, and the block's number within it.
    __device__ __forceinline__ const Arguments& own(int& block) const {
        int map = 0;
        while (map + 1 < n && (int)blockIdx.x >= ends[map]) ++map;
        block = blockIdx.x - (map ? ends[map - 1] : 0);
        return maps[map];
    }
};
