// Maps of kernels that tile space (size = stride): every input has one parent and one slot.
//
// The parents are known since the coarse sites were made (levels.cu), so nothing is searched.

#include "key_fields.cuh"

#define MAX_TASKS 16

struct DisjointTask {
    const i64* keys;     // [N_in] of the inputs
    const u32* count;    // N_in on the device, or null: then `rows`
    const u32* first;    // [N_in] row of the finest level inside every input, or null: the same row
    const i64* above;    // [N_in] output of every input, or null: then by the finest level
    const u32* parent;   // [finest rows] output of every row of the finest level
    int* table;          // [N_out, K], -1 everywhere, or null
    int* masks;          // [N_out, words], 0 everywhere, or null
    int* table_t;        // [N_in, K], or null
    int* masks_t;        // [N_in, words], or null
    int* slots;          // [N_in] slot of every input, or null
    i64* inverse;        // [N_in] output of every input, or null
    u32* counts;         // [K] triplets of every slot, zeroed before, or null
    i64 rows;
    i64 first_block;
    int size[3];
    int spacing[3];      // tensor stride of the inputs
    int words;
    int fill;            // whether rows beyond the inputs are written as empty
};

struct DisjointArguments {
    DisjointTask tasks[MAX_TASKS];
    int n;
};

__device__ __forceinline__ int slot_along(const DisjointTask& task, i64 key, int axis) {
    int size = task.size[axis];
    int place = coordinate_of(key, axis + 1) / task.spacing[axis] % size;  // inputs are multiples of their spacing
    return place < 0 ? place + size : place;
}

KERNEL(disjoint_map, DisjointArguments, 256) {
    int number = 0;
    while (number + 1 < a.n && (i64)blockIdx.x >= a.tasks[number + 1].first_block) ++number;
    const DisjointTask& task = a.tasks[number];
    i64 n = task.count ? (i64)*task.count : task.rows;
    i64 j = ((i64)blockIdx.x - task.first_block) * blockDim.x + threadIdx.x;
    int volume = task.size[0] * task.size[1] * task.size[2];
    if (j >= n) {
        if (!task.fill || j >= task.rows) return;
        if (task.inverse) task.inverse[j] = 0;
        for (int k = 0; task.table_t && k < volume; ++k) task.table_t[j * volume + k] = -1;
        for (int w = 0; task.masks_t && w < task.words; ++w) task.masks_t[j * task.words + w] = 0;
        return;
    }
    i64 key = task.keys[j];
    int slot = slot_along(task, key, 0) * task.size[1] + slot_along(task, key, 1);
    slot = slot * task.size[2] + slot_along(task, key, 2);
    i64 i = task.above ? task.above[j] : (i64)task.parent[task.first ? task.first[j] : j];
    if (task.inverse) task.inverse[j] = i;
    if (task.counts) atomicAdd(&task.counts[slot], 1u);
    if (task.slots) task.slots[j] = slot;
    if (task.table) task.table[i * volume + slot] = (int)j;
    if (task.masks) atomicOr((u32*)&task.masks[i * task.words + slot / 31], 1u << (slot % 31));
    for (int k = 0; task.table_t && k < volume; ++k) task.table_t[j * volume + k] = k == slot ? (int)i : -1;
    for (int w = 0; task.masks_t && w < task.words; ++w)
        task.masks_t[j * task.words + w] = w == slot / 31 ? 1 << (slot % 31) : 0;
}
