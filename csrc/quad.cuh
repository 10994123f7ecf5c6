// 16 bytes that move in one instruction, where an address is a multiple of 16.

#pragma once

struct __align__(16) Quad {
    int x, y, z, w;
};
