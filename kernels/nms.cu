// Greedy non-maximum suppression, class by class or across classes. One block for each picture.
// Twin: crates/orinoco-vision/src/nms.rs. The order is total (score, class, place, index), so the result does not depend
// on the order in which candidates were found.

// Mirror of orinoco_cuda::SuppressSpec.
struct SuppressSpec {
    u32 capacity;    // candidates of one picture in the list
    u32 keep_max;
    u32 across;      // whether boxes of different classes hide one another
    float iou_max;
};

// Mirror of orinoco_cuda::Kept.
struct Kept {
    u32 kept;
    u32 found;       // before suppression; more than the capacity where candidates are missing
};

// Candidates of one picture: what their order and their marks take of a block's shared memory (24 KiB of 48).
static constexpr u32 CANDIDATES_MAX = 8192;
// A place in the order past the last candidate.
static constexpr u16 NONE = 0xffff;

static __device__ bool comes_before(const Candidate &a, const Candidate &b) {
    u32 sa = total_order(a.score), sb = total_order(b.score);
    if (sa != sb) return sa > sb;
    if (a.class_id != b.class_id) return a.class_id < b.class_id;
    u32 ya = total_order(a.y1), yb = total_order(b.y1);
    if (ya != yb) return ya < yb;
    u32 xa = total_order(a.x1), xb = total_order(b.x1);
    if (xa != xb) return xa < xb;
    return a.index < b.index;
}

static __device__ inline float area(float x1, float y1, float x2, float y2) {
    return fmaxf(x2 - x1, 0.0f) * fmaxf(y2 - y1, 0.0f);
}

static __device__ float iou(const Candidate &a, const Candidate &b) {
    float overlap = area(fmaxf(a.x1, b.x1), fmaxf(a.y1, b.y1), fminf(a.x2, b.x2), fminf(a.y2, b.y2));
    float whole = area(a.x1, a.y1, a.x2, a.y2) + area(b.x1, b.y1, b.x2, b.y2) - overlap;
    return whole > 0.0f ? overlap / whole : 0.0f;
}

extern "C" __global__ void suppress(
    SuppressSpec spec, const Candidate *candidates, const u32 *counts, Candidate *kept, Kept *totals) {
    __shared__ u16 order[CANDIDATES_MAX];
    __shared__ u8 hidden[CANDIDATES_MAX];
    u32 item = blockIdx.x, thread = threadIdx.x, threads = blockDim.x;
    u32 found = counts[item], count = min(min(found, spec.capacity), CANDIDATES_MAX);
    candidates += u64(item) * spec.capacity;
    kept += u64(item) * spec.keep_max;
    u32 slots = 1;
    while (slots < count) slots *= 2;
    for (u32 i = thread; i < slots; i += threads) {
        order[i] = i < count ? u16(i) : NONE;
        hidden[i] = 0;
    }
    __syncthreads();
    // A bitonic network. Each pair is compared by one thread.
    for (u32 run = 2; run <= slots; run *= 2) {
        for (u32 gap = run / 2; gap > 0; gap /= 2) {
            for (u32 pair = thread; pair < slots / 2; pair += threads) {
                u32 low = pair / gap * gap * 2 + pair % gap, high = low + gap;
                u16 a = order[low], b = order[high];
                // Slots past the last candidate come after every other.
                bool swapped = b != NONE && (a == NONE || comes_before(candidates[b], candidates[a]));
                bool descending = low & run;
                bool equal = a == b;
                if (!equal && swapped != descending) {
                    order[low] = b;
                    order[high] = a;
                }
            }
            __syncthreads();
        }
    }
    u32 kept_count = 0;
    for (u32 next = 0; next < count && kept_count < spec.keep_max; next++) {
        // The same for every thread: after the barrier below only later marks change.
        if (hidden[next]) continue;
        Candidate better = candidates[order[next]];
        if (thread == 0) kept[kept_count] = better;
        kept_count++;
        for (u32 other = next + 1 + thread; other < count; other += threads) {
            if (hidden[other]) continue;
            const Candidate &candidate = candidates[order[other]];
            bool rivals = spec.across || candidate.class_id == better.class_id;
            if (rivals && iou(better, candidate) > spec.iou_max) hidden[other] = 1;
        }
        __syncthreads();
    }
    if (thread == 0) {
        totals[item].kept = kept_count;
        totals[item].found = found;
    }
}
