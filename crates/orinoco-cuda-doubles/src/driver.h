// A stand-in for libcuda, put after shim.h and the kernels. It proves how we call the driver, not what a GPU does: work is
// queued and runs as late as it may (when somebody waits for it), memory is checked to be there when work is queued and
// when it runs, a call without a context or one that a capture forbids is refused, and what is freed too early, twice or
// never ends the process.
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace stand_in {

typedef std::function<void()> Op;
enum Result {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    ILLEGAL_ADDRESS = 700,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    UPDATE_FAILURE = 910,
};

struct Stream {
    std::deque<Op> queue;
    u64 queued = 0, done = 0;
    bool capturing = false, invalid = false;
    std::thread::id capturer;
    std::vector<Op> captured;
};

struct Event {
    Stream *stream = nullptr;
    u64 at = 0;
};

struct Graph {
    std::vector<Op> ops;
};

static std::recursive_mutex guard;
static thread_local void *current;
static int context_mark, retained;
static std::map<u64, size_t> memory;
// Streams are kept for good, because events name them; `streams` are those that are not destroyed.
static std::set<Stream *> streams;
static std::set<Event *> events;
static std::set<Graph *> graphs;
static std::set<int *> modules;

static void fail(const char *what) {
    fprintf(stderr, "stand-in driver: %s\n", what);
    abort();
}

static void run(Stream *stream, u64 until) {
    while (stream->done < until) {
        Op op = std::move(stream->queue.front());
        stream->queue.pop_front();
        stream->done++;
        op();
    }
}

static void run_all() {
    for (Stream *stream : std::set<Stream *>(streams)) run(stream, stream->queued);
}

static bool idle() {
    return std::all_of(streams.begin(), streams.end(), [](Stream *s) { return s->done == s->queued; });
}

static bool is_there(u64 address, size_t bytes) {
    auto next = memory.upper_bound(address);
    if (next == memory.begin()) return false;
    auto found = std::prev(next);
    return address + bytes <= found->first + found->second;
}

static void need(u64 address, size_t bytes) {
    if (!is_there(address, bytes)) fail("work uses memory that is not there");
}

static int queue(Stream *stream, Op op) {
    if (!streams.count(stream)) fail("work for a stream that is not there");
    if (stream->capturing) {
        stream->captured.push_back(op);
    } else {
        stream->queue.push_back(op);
        stream->queued++;
    }
    return SUCCESS;
}

// The modes of CUstreamCaptureMode, and the one in which this thread takes captures of others.
enum { GLOBAL, THREAD_LOCAL };
static thread_local int capture_mode = GLOBAL;

// Whether a call that allocates is forbidden: while this thread captures, if it has said that it leaves others alone.
static bool forbidden() {
    if (capture_mode == GLOBAL) fail("such a call would end a capture that another thread began in global mode");
    bool found = false;
    for (Stream *stream : streams) {
        if (stream->capturing && stream->capturer == std::this_thread::get_id()) stream->invalid = found = true;
    }
    return found;
}

// Whether a call that waits for the whole context is forbidden: while any thread captures, whatever it has said. Freeing
// memory may wait for it, too.
static bool forbidden_to_all() {
    bool found = forbidden();
    for (Stream *stream : streams) {
        if (stream->capturing) stream->invalid = found = true;
    }
    return found;
}

// A surface of libnvbufsurface, in a file that ends with the offsets and pitches of its two planes.
struct Params {
    unsigned width, height, pitch, color_format, layout;
    u64 fd;
    unsigned bytes;
    void *pixels;
    unsigned planes, widths[4], heights[4], pitches[4], offsets[4], sizes[4], bytes_per_pixel[4];
    void *reserved[16], *mapped[4], *image;
};
struct Surface {
    unsigned gpu, batch, filled, contiguous, type;
    Params *list;
    bool registered;
};
struct EglFrame {
    void *planes[3];
    unsigned width, height, depth, pitch, count, channels, type, color, element;
};
static std::map<u64, Surface *> surfaces;

// Runs after the last test: what was taken must have been given back.
struct AtTheEnd {
    ~AtTheEnd() {
        if (retained != 0) fail("the context was not given back");
        for (auto &known : surfaces)
            if (known.second->list->image) fail("an image was not unmapped");
    }
};
static AtTheEnd at_the_end;

template <class... A, size_t... I>
static Op prepare(void (*kernel)(A...), void **values, std::index_sequence<I...>) {
    // The driver copies arguments when the launch is queued.
    auto copies = std::make_shared<std::tuple<A...>>(*static_cast<A *>(values[I])...);
    return [=] {
        void *places[] = {&std::get<I>(*copies)...};
        emulator::parameters = places;
        emulator::run_grid();
    };
}

template <class... A> static Op prepare(void (*kernel)(A...), void **values) {
    return prepare(kernel, values, std::index_sequence_for<A...>());
}

struct Kernel {
    const char *name;
    void (*body)(void **);
    Op (*prepare)(void **);
};
extern const Kernel kernels[];
extern const size_t kernel_count;

} // namespace stand_in

using namespace stand_in;
typedef std::lock_guard<std::recursive_mutex> Lock;
#define BEGIN                                     \
    Lock lock(guard);                             \
    if (current == nullptr) return INVALID_CONTEXT

extern "C" {

int cuInit(unsigned) { return SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 12060, SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = 40 + ordinal, ordinal == 0 ? SUCCESS : INVALID_DEVICE; }
int cuDeviceGetName(char *name, int length, int) { return snprintf(name, length, "stand-in"), SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = 8ull << 30, SUCCESS; }
int cuDeviceGetAttribute(int *value, int which, int device) {
    if (device != 40) return INVALID_DEVICE;
    switch (which) {
        case 75: return *value = 8, SUCCESS;
        case 76: return *value = 7, SUCCESS;
        case 18: return *value = getenv("STAND_IN_INTEGRATED") != nullptr, SUCCESS;
        default: return INVALID_VALUE;
    }
}

int cuDevicePrimaryCtxRetain(void **context, int) {
    Lock lock(guard);
    retained++;
    return *context = &context_mark, SUCCESS;
}
int cuDevicePrimaryCtxRelease_v2(int) {
    Lock lock(guard);
    if (--retained < 0) fail("the context was given back too often");
    if (retained == 0 && !(memory.empty() && streams.empty() && events.empty() && graphs.empty() && modules.empty()))
        fail("something was not freed before the context was given back");
    return SUCCESS;
}
int cuCtxSetCurrent(void *context) { return current = context, SUCCESS; }
int cuCtxSynchronize() {
    BEGIN;
    if (forbidden_to_all()) return CAPTURE_UNSUPPORTED;
    return run_all(), SUCCESS;
}

int cuStreamCreate(Stream **stream, unsigned) {
    BEGIN;
    return streams.insert(*stream = new Stream), SUCCESS;
}
int cuStreamDestroy_v2(Stream *stream) {
    BEGIN;
    run(stream, stream->queued);
    if (!streams.erase(stream)) fail("a stream is destroyed twice");
    return SUCCESS;
}
int cuStreamSynchronize(Stream *stream) {
    BEGIN;
    if (stream->capturing) return stream->invalid = true, CAPTURE_UNSUPPORTED;
    return run(stream, stream->queued), SUCCESS;
}
int cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    BEGIN;
    if (!events.count(event)) return INVALID_VALUE;
    Event then = *event;
    return queue(stream, [=] { if (then.stream) run(then.stream, then.at); });
}

int cuEventCreate(Event **event, unsigned) {
    BEGIN;
    return events.insert(*event = new Event), SUCCESS;
}
int cuEventRecord(Event *event, Stream *stream) {
    BEGIN;
    if (!events.count(event)) return INVALID_VALUE;
    event->stream = stream;
    event->at = stream->queued;
    return SUCCESS;
}
int cuEventSynchronize(Event *event) {
    BEGIN;
    if (event->stream) run(event->stream, event->at);
    return SUCCESS;
}
// Every time is 1 ms.
int cuEventElapsedTime(float *milliseconds, Event *start, Event *end) {
    BEGIN;
    for (Event *event : {start, end}) {
        if (!events.count(event)) return INVALID_VALUE;
        if (event->stream && event->stream->done < event->at) fail("the time of an event that has not passed");
    }
    return *milliseconds = 1.0f, SUCCESS;
}
int cuEventDestroy_v2(Event *event) {
    BEGIN;
    if (!events.erase(event)) fail("an event is destroyed twice");
    delete event;
    return SUCCESS;
}

static u64 allocate(size_t bytes) {
    char *place = (char *)aligned_alloc(256, (bytes + 255) / 256 * 256);
    // What is allocated is not zero.
    memset(place, 0xcd, bytes);
    memory[u64(place)] = bytes;
    return u64(place);
}
static int release(u64 address) {
    if (!memory.count(address)) fail("memory is freed that is not there");
    if (!idle()) fail("memory is freed while work is queued");
    memory.erase(address);
    free((void *)address);
    return SUCCESS;
}
int cuMemAlloc_v2(u64 *address, size_t bytes) {
    BEGIN;
    if (bytes == 0) return INVALID_VALUE;
    if (forbidden()) return CAPTURE_UNSUPPORTED;
    return *address = allocate(bytes), SUCCESS;
}
int cuMemFree_v2(u64 address) {
    BEGIN;
    if (forbidden_to_all()) return CAPTURE_UNSUPPORTED;
    return release(address);
}
int cuMemHostAlloc(void **host, size_t bytes, unsigned flags) {
    BEGIN;
    if (bytes == 0) return INVALID_VALUE;
    if (flags != 2) fail("pinned memory is mapped, and nothing else");
    if (forbidden()) return CAPTURE_UNSUPPORTED;
    return *host = (void *)allocate(bytes), SUCCESS;
}
int cuMemHostGetDevicePointer_v2(u64 *address, void *host, unsigned) {
    BEGIN;
    return *address = u64(host), memory.count(u64(host)) ? SUCCESS : INVALID_VALUE;
}
int cuMemFreeHost(void *host) {
    BEGIN;
    if (forbidden_to_all()) return CAPTURE_UNSUPPORTED;
    return release(u64(host));
}

int cuMemcpyAsync(u64 to, u64 from, size_t bytes, Stream *stream) {
    BEGIN;
    if (!is_there(to, bytes) || !is_there(from, bytes)) return ILLEGAL_ADDRESS;
    return queue(stream, [=] {
        need(to, bytes);
        need(from, bytes);
        memmove((void *)to, (void *)from, bytes);
    });
}
int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t bytes, Stream *stream) {
    BEGIN;
    if (!is_there(to, bytes)) return ILLEGAL_ADDRESS;
    return queue(stream, [=] { need(to, bytes), memcpy((void *)to, from, bytes); });
}
int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t bytes, Stream *stream) {
    BEGIN;
    if (!is_there(from, bytes)) return ILLEGAL_ADDRESS;
    return queue(stream, [=] { need(from, bytes), memcpy(to, (void *)from, bytes); });
}
int cuMemsetD8Async(u64 to, unsigned char value, size_t bytes, Stream *stream) {
    BEGIN;
    if (!is_there(to, bytes)) return ILLEGAL_ADDRESS;
    return queue(stream, [=] { need(to, bytes), memset((void *)to, value, bytes); });
}

int cuModuleLoadData(int **module, const void *image) {
    BEGIN;
    if (memcmp(image, "\x7f" "ELF", 4) != 0) return INVALID_IMAGE;
    return modules.insert(*module = new int), SUCCESS;
}
int cuModuleGetFunction(const Kernel **function, int *module, const char *name) {
    BEGIN;
    if (!modules.count(module)) return INVALID_VALUE;
    const Kernel *end = kernels + kernel_count;
    *function = std::find_if(kernels, end, [=](const Kernel &kernel) { return strcmp(kernel.name, name) == 0; });
    return *function == end ? NOT_FOUND : SUCCESS;
}
int cuModuleUnload(int *module) {
    BEGIN;
    if (!modules.erase(module)) fail("a module is unloaded twice");
    delete module;
    return SUCCESS;
}
int cuLaunchKernel(
    const Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
    Stream *stream, void **values, void **extra) {
    BEGIN;
    if (gx * gy * gz == 0 || bx * by * bz == 0 || bx * by * bz > 1024 || shared != 0 || extra) return INVALID_VALUE;
    Op op = kernel->prepare(values);
    return queue(stream, [=] {
        emulator::body = kernel->body;
        gridDim = {gx, gy, gz};
        blockDim = {bx, by, bz};
        op();
    });
}

int cuThreadExchangeStreamCaptureMode(int *mode) {
    Lock lock(guard);
    return std::swap(*mode, capture_mode), SUCCESS;
}
int cuStreamBeginCapture_v2(Stream *stream, int mode) {
    BEGIN;
    if (stream->capturing || mode != 1) return INVALID_VALUE;
    stream->capturing = true;
    stream->capturer = std::this_thread::get_id();
    stream->invalid = false;
    stream->captured.clear();
    return SUCCESS;
}
int cuStreamEndCapture(Stream *stream, Graph **graph) {
    BEGIN;
    stream->capturing = false;
    if (stream->invalid) return *graph = nullptr, CAPTURE_INVALIDATED;
    *graph = new Graph;
    (*graph)->ops = stream->captured;
    return graphs.insert(*graph), SUCCESS;
}
static int destroy(Graph *graph) {
    if (!graphs.erase(graph)) fail("a graph is destroyed twice");
    delete graph;
    return SUCCESS;
}
int cuGraphInstantiateWithFlags(Graph **exec, Graph *graph, unsigned long long) {
    BEGIN;
    if (!graphs.count(graph)) return INVALID_VALUE;
    return graphs.insert(*exec = new Graph(*graph)), SUCCESS;
}
struct UpdateInfo {
    int result;
    void *node, *from;
};
int cuGraphExecUpdate_v2(Graph *exec, Graph *graph, UpdateInfo *info) {
    BEGIN;
    if (!graphs.count(exec) || !graphs.count(graph)) return INVALID_VALUE;
    if (!idle()) fail("a graph is changed while it may run");
    info->result = 0;
    if (exec->ops.size() != graph->ops.size()) return info->result = 2, UPDATE_FAILURE;
    exec->ops = graph->ops;
    return SUCCESS;
}
int cuGraphLaunch(Graph *exec, Stream *stream) {
    BEGIN;
    if (!graphs.count(exec) || stream->capturing) return INVALID_VALUE;
    for (const Op &op : exec->ops) queue(stream, op);
    return SUCCESS;
}
int cuGraphDestroy(Graph *graph) {
    BEGIN;
    return destroy(graph);
}
int cuGraphExecDestroy(Graph *exec) {
    BEGIN;
    return destroy(exec);
}

int NvBufSurfaceFromFd(int fd, Surface **surface) {
    Lock lock(guard);
    struct stat file;
    unsigned layout[4];
    if (fstat(fd, &file) != 0 || file.st_size < sizeof layout) return -1;
    pread(fd, layout, sizeof layout, file.st_size - sizeof layout);
    Surface *&known = surfaces[file.st_ino];
    if (!known) known = new Surface{0, 1, 1, 0, 4, new Params{}, false};
    Params *params = known->list;
    params->fd = fd;
    params->bytes = file.st_size;
    params->planes = 2;
    std::copy(layout, layout + 2, params->offsets);
    std::copy(layout + 2, layout + 4, params->pitches);
    return *surface = known, 0;
}
int NvBufSurfaceMapEglImage(Surface *surface, int index) {
    Lock lock(guard);
    Params *params = surface->list;
    if (index != 0 || params->image) fail("a surface is mapped twice");
    void *place = mmap(nullptr, params->bytes, PROT_READ, MAP_SHARED, params->fd, 0);
    if (place == MAP_FAILED) return -1;
    return params->image = place, 0;
}
int NvBufSurfaceUnMapEglImage(Surface *surface, int index) {
    Lock lock(guard);
    Params *params = surface->list;
    if (index != 0 || !params->image || surface->registered) fail("an image is unmapped that is not there, or in use");
    munmap(params->image, params->bytes);
    return params->image = nullptr, 0;
}
int cuGraphicsEGLRegisterImage(Surface **resource, void *image, unsigned flags) {
    BEGIN;
    if (flags != 1) fail("surfaces are read, and nothing else");
    for (auto &known : surfaces) {
        Surface *surface = known.second;
        if (surface->list->image != image) continue;
        if (surface->registered) return INVALID_VALUE;
        surface->registered = true;
        memory[u64(image)] = surface->list->bytes;
        return *resource = surface, SUCCESS;
    }
    return INVALID_VALUE;
}
int cuGraphicsResourceGetMappedEglFrame(EglFrame *frame, Surface *surface, unsigned index, unsigned level) {
    BEGIN;
    if (!surface->registered || index != 0 || level != 0) return INVALID_VALUE;
    char *start = (char *)surface->list->image;
    *frame = {};
    for (int plane = 0; plane < 2; plane++) frame->planes[plane] = start + surface->list->offsets[plane];
    frame->count = 2;
    frame->type = 1;
    return SUCCESS;
}
int cuGraphicsUnregisterResource(Surface *surface) {
    BEGIN;
    if (!surface->registered) fail("a surface is given back twice");
    if (!idle()) fail("a surface is given back while work is queued");
    memory.erase(u64(surface->list->image));
    surface->registered = false;
    return SUCCESS;
}

int cuGetErrorName(int error, const char **text) {
    switch (error) {
        case CAPTURE_UNSUPPORTED: *text = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"; return SUCCESS;
        case CAPTURE_INVALIDATED: *text = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"; return SUCCESS;
        default: *text = nullptr; return INVALID_VALUE;
    }
}
int cuGetErrorString(int error, const char **text) {
    *text = "as the stand-in says";
    return error == SUCCESS ? INVALID_VALUE : SUCCESS;
}

} // extern "C"
