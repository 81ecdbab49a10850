// Enough of CUDA for kernels to run on the CPU, one thread of a block after another. A thread is a coroutine, so that it
// can wait at a barrier. Threads and blocks run forwards or backwards: a result that depends on it is wrong.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
// Blocks run one after another, so one copy serves them all.
#define __shared__ static

struct Index {
    unsigned x, y, z;
};

static Index threadIdx, blockIdx, blockDim, gridDim;

using std::max;
using std::min;

static unsigned atomicAdd(unsigned *place, unsigned value) {
    unsigned before = *place;
    *place += value;
    return before;
}

namespace emulator {

const size_t STACK_BYTES = 64 << 10;

struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    Index index;
    bool ended;
};

static ucontext_t scheduler;
static Thread *running;
static void (*body)(void **);
static void **parameters;

static void start() {
    body(parameters);
    running->ended = true;
}

static void run_block(std::vector<Thread> &threads, bool backwards) {
    for (size_t i = 0; i < threads.size(); i++) {
        Thread &thread = threads[i];
        thread.ended = false;
        unsigned place = unsigned(i);
        thread.index = {place % blockDim.x, place / blockDim.x % blockDim.y, place / blockDim.x / blockDim.y};
        getcontext(&thread.context);
        thread.context.uc_stack.ss_sp = thread.stack.get();
        thread.context.uc_stack.ss_size = STACK_BYTES;
        thread.context.uc_link = &scheduler;
        makecontext(&thread.context, start, 0);
    }
    // Every thread runs to its next barrier or its end, again and again.
    for (bool waiting = true; waiting;) {
        size_t ended = 0, was_ended = 0;
        for (size_t i = 0; i < threads.size(); i++) {
            Thread &thread = threads[backwards ? threads.size() - 1 - i : i];
            was_ended += thread.ended;
            if (!thread.ended) {
                running = &thread;
                threadIdx = thread.index;
                swapcontext(&scheduler, &thread.context);
            }
            ended += thread.ended;
        }
        waiting = ended < threads.size();
        // A thread that leaves for good while others wait for it: on a GPU that is not defined.
        if (waiting && ended != was_ended) {
            fprintf(stderr, "threads of a block part at a barrier\n");
            abort();
        }
    }
}

template <class... A, size_t... I>
static void call(void (*kernel)(A...), void **values, std::index_sequence<I...>) {
    kernel(*static_cast<A *>(values[I])...);
}

template <class... A> static void call(void (*kernel)(A...), void **values) {
    call(kernel, values, std::index_sequence_for<A...>());
}

struct Entry {
    const char *name;
    void (*body)(void **);
};

// Runs `body` on a grid of `gridDim` blocks of `blockDim` threads.
static void run_grid(bool backwards = false) {
    // Kept, because most of a small launch would be making stacks.
    static std::vector<Thread> threads;
    threads.resize(size_t(blockDim.x) * blockDim.y * blockDim.z);
    unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    for (unsigned i = 0; i < blocks; i++) {
        unsigned block = backwards ? blocks - 1 - i : i;
        blockIdx = {block % gridDim.x, block / gridDim.x % gridDim.y, block / gridDim.x / gridDim.y};
        run_block(threads, backwards);
    }
}

const size_t PAGE_BYTES = 4096;

static size_t pages_for(size_t bytes) { return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; }

// Memory between two pages that nobody may touch: it ends at the second, or starts after the first.
static char *place(size_t bytes, bool at_end) {
    size_t inside = pages_for(bytes), whole = inside + 2 * PAGE_BYTES;
    void *pages = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect((char *)pages + PAGE_BYTES, inside, PROT_READ | PROT_WRITE) != 0) abort();
    return (char *)pages + PAGE_BYTES + (at_end ? inside - bytes : 0);
}

static void remove(char *placed, size_t bytes, bool at_end) {
    size_t inside = pages_for(bytes);
    char *pages = placed - PAGE_BYTES - (at_end ? inside - bytes : 0);
    munmap(pages, inside + 2 * PAGE_BYTES);
}

static int launch(
    const Entry *entries, size_t count, const char *name, const unsigned *grid, void **values, bool backwards) {
    const Entry *end = entries + count;
    const Entry *entry = std::find_if(entries, end, [=](const Entry &e) { return strcmp(e.name, name) == 0; });
    if (entry == end) return 1;
    body = entry->body;
    parameters = values;
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {grid[3], grid[4], grid[5]};
    run_grid(backwards);
    return 0;
}

} // namespace emulator

static void __syncthreads() { swapcontext(&emulator::running->context, &emulator::scheduler); }
