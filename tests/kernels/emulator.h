// CUDA kernels as C++ on a CPU: every thread of a block is a fiber, blocks run one after another, in
// ascending order or in descending order.
//
// Covers what csrc uses and nothing more. Finds wrong indices, wrong results, deadlocks, collectives
// that some lanes of a warp never reach, and argument structs of the wrong size; it does not find
// data races, nor anything that depends on blocks running at the same time.

#pragma once
#define PCNN_EMULATED 1

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __forceinline__ inline
#define __align__(n) alignas(n)
#define __grid_constant__
#define __launch_bounds__(...)

struct Dimension {
    unsigned x, y, z;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) longlong2 {
    long long x, y;
};
static Dimension threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, blockDim{1, 1, 1}, gridDim{1, 1, 1};

namespace emulator {

enum Collective { NONE, SHUFFLE, BALLOT, MATCH, REDUCE, SYNC };

struct Meeting {  // where fibers wait for each other
    int arrived = 0, members = 0;
    unsigned long long generation = 0;
};

struct Warp {
    Meeting meeting;
    // Of one collective and of the next, in turn: all lanes have read a value before any of them
    // hands in the one after the next, so that they need not meet again.
    unsigned long long value[2][32];
    Collective kind = NONE;  // in which its lanes meet
    bool partial = false;  // some lane has returned
};

constexpr std::size_t STACK_BYTES = 64 << 10;

struct Fiber {
    jmp_buf here;  // where it goes on
    std::unique_ptr<char[]> stack;  // not filled: most of its pages are never touched
    const Meeting* waits = nullptr;  // until its generation is no more `seen`
    unsigned long long seen = 0;
    bool done = false;
};

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Meeting block;
static jmp_buf scheduler;
static int current = 0;
static bool progress = false;
static char message[512] = "";
alignas(16) static unsigned char dynamic_shared[232448];
static void (*body)(const void*);
static const void* arguments;

// Back to the scheduler. Jumps: swapcontext would ask the kernel for the signal mask every time.
__attribute__((noinline)) inline void yield() {
    if (!_setjmp(fibers[current].here)) _longjmp(scheduler, 1);
}

[[noreturn]] inline void fail(const char* what) {
    if (!message[0])
        std::snprintf(message, sizeof message, "%s (block %u, thread %u)", what, blockIdx.x, threadIdx.x);
    for (;;) yield();  // never progresses again: the scheduler gives up
}

inline void release(Meeting& meeting) {
    meeting.arrived = 0;
    meeting.generation++;
}

inline void meet(Meeting& meeting) {
    progress = true;
    unsigned long long generation = meeting.generation;
    if (++meeting.arrived == meeting.members)
        release(meeting);
    else {
        fibers[current].waits = &meeting;
        fibers[current].seen = generation;
        yield();  // runs again when the generation has changed
        fibers[current].waits = nullptr;
    }
    progress = true;
}

// All lanes hand in a value; `use` reads the 32 of them.
template <typename Use>
auto collect(unsigned mask, unsigned long long value, Collective kind, Use use) {
    Warp& warp = warps[threadIdx.x / 32];
    if (mask != 0xffffffffu) fail("a warp collective without the full mask");
    if (warp.partial) fail("a warp collective after lanes of the warp have returned");
    const int turn = warp.meeting.generation % 2;
    warp.value[turn][threadIdx.x % 32] = value;
    if (!warp.meeting.arrived) warp.kind = kind;
    if (warp.kind != kind) fail("lanes of a warp meet in different collectives");
    meet(warp.meeting);
    return use(warp.value[turn]);
}

[[noreturn]] inline void enter() {
    for (;;) {  // once a block
        body(arguments);
        fibers[current].done = true;
        progress = true;
        if (--block.members && block.arrived == block.members) release(block);
        Warp& warp = warps[current / 32];
        warp.partial = true;
        if (warp.meeting.arrived) {
            if (!message[0])
                std::snprintf(message, sizeof message,
                              "a lane returns while others of its warp wait in a collective (block %u, thread %d)",
                              blockIdx.x, current);
        }
        yield();
    }
}

// Run a fiber until it yields.
__attribute__((noinline)) inline void resume(Fiber& fiber) {
    if (_setjmp(scheduler)) return;
    if (fiber.stack) _longjmp(fiber.here, 1);
    fiber.stack.reset(new char[STACK_BYTES]);
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = fiber.stack.get();
    start.uc_stack.ss_size = STACK_BYTES;
    start.uc_link = nullptr;
    makecontext(&start, enter, 0);
    setcontext(&start);
}

inline bool run_block(unsigned threads) {
    warps.assign(threads / 32, Warp());
    for (Warp& warp : warps) warp.meeting.members = 32;
    block = Meeting();
    block.members = threads;
    if (fibers.size() < threads) fibers.resize(threads);
    for (unsigned t = 0; t < threads; ++t) {
        fibers[t].done = false;
        fibers[t].waits = nullptr;
    }
    unsigned finished = 0;
    while (finished < threads) {
        progress = false;
        finished = 0;
        for (unsigned t = 0; t < threads; ++t) {
            Fiber& fiber = fibers[t];
            if (!fiber.done && !(fiber.waits && fiber.waits->generation == fiber.seen)) {
                current = t;
                threadIdx.x = t;
                resume(fiber);
            }
            finished += fiber.done;
        }
        if (message[0]) return false;
        if (finished < threads && !progress) {
            std::snprintf(message, sizeof message, "deadlock in block %u: threads wait for each other",
                          blockIdx.x);
            return false;
        }
    }
    return true;
}

inline const char* launch(long long grid, unsigned threads, void (*kernel)(const void*), const void* packed,
                          int descending) {
    message[0] = 0;
    body = kernel;
    arguments = packed;
    gridDim.x = static_cast<unsigned>(grid);
    blockDim.x = threads;
    for (long long b = 0; b < grid; ++b) {
        blockIdx.x = static_cast<unsigned>(descending ? grid - 1 - b : b);
        std::memset(dynamic_shared, 0xCD, sizeof dynamic_shared);
        if (!run_block(threads)) {
            fibers.clear();
            return message;
        }
    }
    return nullptr;
}

template <typename T>
unsigned long long bits(T value) {
    unsigned long long out = 0;
    std::memcpy(&out, &value, sizeof value);
    return out;
}

template <typename T>
T from_bits(unsigned long long raw) {
    T value;
    std::memcpy(&value, &raw, sizeof value);
    return value;
}

}  // namespace emulator

#define KERNEL(name, Arguments, threads)                                                        \
    static void name##_body(const Arguments& a);                                                \
    extern "C" const char* name(long long grid, const void* packed, long long size, int down) { \
        if (size != (long long)sizeof(Arguments)) {                                             \
            std::snprintf(emulator::message, sizeof emulator::message,                          \
                          #name ": the arguments take %lld bytes, the struct has %lld", size,   \
                          (long long)sizeof(Arguments));                                        \
            return emulator::message;                                                           \
        }                                                                                       \
        return emulator::launch(                                                                \
            grid, threads, [](const void* p) { name##_body(*(const Arguments*)p); }, packed,    \
            down);                                                                              \
    }                                                                                           \
    static void name##_body(const Arguments& a)

#define DYNAMIC_SHARED(name) unsigned char* name = emulator::dynamic_shared

inline void __syncthreads() { emulator::meet(emulator::block); }
inline int __syncthreads_or(int predicate) {
    static int any;
    __syncthreads();
    any = 0;
    __syncthreads();
    any |= predicate != 0;
    __syncthreads();
    return any;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

inline void __syncwarp(unsigned mask = 0xffffffffu) {
    emulator::collect(mask, 0, emulator::SYNC, [](const unsigned long long*) { return 0; });
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int = 32) {
    return emulator::collect(mask, emulator::bits(value), emulator::SHUFFLE,
                             [&](const unsigned long long* v) { return emulator::from_bits<T>(v[source & 31]); });
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int = 32) {
    int lane = threadIdx.x % 32;
    int source = lane >= (int)delta ? lane - (int)delta : lane;
    return __shfl_sync(mask, value, source);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int = 32) {
    int lane = threadIdx.x % 32;
    return __shfl_sync(mask, value, lane + (int)delta < 32 ? lane + (int)delta : lane);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int = 32) {
    return __shfl_sync(mask, value, (int)(threadIdx.x % 32) ^ lanes);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    return emulator::collect(mask, predicate != 0, emulator::BALLOT, [](const unsigned long long* v) {
        unsigned ballot = 0;
        for (int lane = 0; lane < 32; ++lane) ballot |= (unsigned)(v[lane] & 1) << lane;
        return ballot;
    });
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == 0xffffffffu; }
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
    unsigned long long own = emulator::bits(value);
    return emulator::collect(mask, own, emulator::MATCH, [&](const unsigned long long* v) {
        unsigned same = 0;
        for (int lane = 0; lane < 32; ++lane) same |= (unsigned)(v[lane] == own) << lane;
        return same;
    });
}
template <typename T>
T emulated_reduce(unsigned mask, T value, T (*join)(T, T)) {
    return emulator::collect(mask, emulator::bits(value), emulator::REDUCE, [&](const unsigned long long* v) {
        T total = emulator::from_bits<T>(v[0]);
        for (int lane = 1; lane < 32; ++lane) total = join(total, emulator::from_bits<T>(v[lane]));
        return total;
    });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
    return emulated_reduce<unsigned>(mask, value, [](unsigned x, unsigned y) { return x | y; });
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value) {
    return emulated_reduce<T>(mask, value, [](T x, T y) { return (T)(x + y); });
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value) {
    return emulated_reduce<T>(mask, value, [](T x, T y) { return x > y ? x : y; });
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value) {
    return emulated_reduce<T>(mask, value, [](T x, T y) { return x < y ? x : y; });
}

template <typename T, typename V>
T atomicAdd(T* address, V value) {
    T old = *address;
    *address = (T)(old + (T)value);
    return old;
}
template <typename T, typename V>
T atomicOr(T* address, V value) {
    T old = *address;
    *address = old | (T)value;
    return old;
}
template <typename T, typename V>
T atomicMin(T* address, V value) {
    T old = *address;
    if ((T)value < old) *address = (T)value;
    return old;
}
template <typename T, typename V>
T atomicMax(T* address, V value) {
    T old = *address;
    if ((T)value > old) *address = (T)value;
    return old;
}
template <typename T, typename V>
T atomicExch(T* address, V value) {
    T old = *address;
    *address = (T)value;
    return old;
}
template <typename T, typename C, typename V>
T atomicCAS(T* address, C compare, V value) {
    T old = *address;
    if (old == (T)compare) *address = (T)value;
    return old;
}

template <typename T>
T __ldg(const T* address) {
    return *address;
}
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline long long __double_as_longlong(double x) {
    long long bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __ffsll(long long value) { return __builtin_ffsll(value); }
inline int __clz(int value) { return value ? __builtin_clz((unsigned)value) : 32; }
inline int __clzll(long long value) { return value ? __builtin_clzll((unsigned long long)value) : 64; }
template <typename A, typename B>
std::common_type_t<A, B> min(A x, B y) {
    std::common_type_t<A, B> p = x, q = y;
    return p < q ? p : q;
}
template <typename A, typename B>
std::common_type_t<A, B> max(A x, B y) {
    std::common_type_t<A, B> p = x, q = y;
    return p > q ? p : q;
}
