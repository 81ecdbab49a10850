// Model outputs into candidates for suppression, and class values into the best classes.
// Twins: crates/orinoco-vision/src/heads/{yolox,yolov5,yolov8,classification}.rs.

// Mirror of orinoco_cuda::GridLevel: cells of one size, in raster order.
struct GridLevel {
    u32 first;       // row of the output
    u32 columns;
    float stride;
};

// Mirror of orinoco_cuda::DecodeSpec.
struct DecodeSpec {
    u32 rows;        // of one picture: cells or anchors
    u32 values;      // of one row
    u32 classes;
    u32 element;     // of the output
    u32 multi_label; // every class above the threshold, or the best
    u32 capacity;    // candidates of one picture
    float threshold;
    u32 levels_used; // 0: boxes are in model pixels already
    GridLevel levels[4];
};

// Appends a candidate. The count goes on where the list is full, so that the host sees what is missing.
static __device__ void push(
    const DecodeSpec &spec, Candidate *candidates, u32 *count, u32 row, u32 class_id, float score, Candidate box) {
    u32 place = atomicAdd(count, 1u);
    if (place >= spec.capacity) return;
    box.class_id = class_id;
    box.score = score;
    box.index = row * spec.classes + class_id;
    candidates[place] = box;
}

// A box in model pixels as one in pixels of the upright frame.
static __device__ Candidate to_source(const FrameEntry &entry, float x1, float y1, float x2, float y2) {
    Candidate box;
    box.class_id = 0;
    box.score = 0.0f;
    box.index = 0;
    box.x1 = (x1 - float(entry.offset_x)) / entry.scale_x;
    box.y1 = (y1 - float(entry.offset_y)) / entry.scale_y;
    box.x2 = (x2 - float(entry.offset_x)) / entry.scale_x;
    box.y2 = (y2 - float(entry.offset_y)) / entry.scale_y;
    return box;
}

// Rows of `[x, y, w, h, objectness, classes..]`: YOLOX with a grid, YOLOv5 without.
extern "C" __global__ void decode_rows(
    const FrameEntry *table, DecodeSpec spec, const void *output, Candidate *candidates, u32 *counts) {
    u32 item = blockIdx.y, row = blockIdx.x * blockDim.x + threadIdx.x;
    const FrameEntry &entry = table[item];
    if (entry.address == 0 || row >= spec.rows) return;
    u64 first = (u64(item) * spec.rows + row) * spec.values;
    float objectness = load(output, spec.element, first + 4);
    // Class scores are at most 1, so most rows end here.
    if (!(objectness > spec.threshold)) return;
    float x = load(output, spec.element, first), y = load(output, spec.element, first + 1);
    float w = load(output, spec.element, first + 2), h = load(output, spec.element, first + 3);
    if (spec.levels_used == 0) {
        w /= 2.0f;
        h /= 2.0f;
    } else {
        u32 level = 0;
        while (level + 1 < spec.levels_used && row >= spec.levels[level + 1].first) level++;
        GridLevel grid = spec.levels[level];
        u32 cell = row - grid.first;
        x = (x + float(cell % grid.columns)) * grid.stride;
        y = (y + float(cell / grid.columns)) * grid.stride;
        w = expf(w) * grid.stride / 2.0f;
        h = expf(h) * grid.stride / 2.0f;
    }
    Candidate box = to_source(entry, x - w, y - h, x + w, y + h);
    candidates += u64(item) * spec.capacity;
    u32 best = 0;
    float best_value = -float_of(0x7f800000u);
    for (u32 class_id = 0; class_id < spec.classes; class_id++) {
        float value = load(output, spec.element, first + 5 + class_id);
        if (spec.multi_label) {
            float score = objectness * value;
            if (score > spec.threshold) push(spec, candidates, counts + item, row, class_id, score, box);
        } else if (value > best_value) {
            best = class_id;
            best_value = value;
        }
    }
    float score = objectness * best_value;
    if (!spec.multi_label && score > spec.threshold) push(spec, candidates, counts + item, row, best, score, box);
}

// Channels before anchors, `[cx, cy, w, h, classes.., more..]`: YOLOv8 and YOLO11.
extern "C" __global__ void decode_channels(
    const FrameEntry *table, DecodeSpec spec, const void *output, Candidate *candidates, u32 *counts) {
    u32 item = blockIdx.y, anchor = blockIdx.x * blockDim.x + threadIdx.x;
    const FrameEntry &entry = table[item];
    if (entry.address == 0 || anchor >= spec.rows) return;
    u64 first = u64(item) * spec.rows * spec.values + anchor;
    u32 best = 0, above = 0;
    float best_score = -float_of(0x7f800000u);
    for (u32 class_id = 0; class_id < spec.classes; class_id++) {
        float score = load(output, spec.element, first + u64(4 + class_id) * spec.rows);
        above += score > spec.threshold;
        if (score > best_score) {
            best = class_id;
            best_score = score;
        }
    }
    if (above == 0) return;
    float cx = load(output, spec.element, first), cy = load(output, spec.element, first + spec.rows);
    float w = load(output, spec.element, first + 2ull * spec.rows) / 2.0f;
    float h = load(output, spec.element, first + 3ull * spec.rows) / 2.0f;
    Candidate box = to_source(entry, cx - w, cy - h, cx + w, cy + h);
    candidates += u64(item) * spec.capacity;
    if (!spec.multi_label) {
        push(spec, candidates, counts + item, anchor, best, best_score, box);
        return;
    }
    for (u32 class_id = 0; class_id < spec.classes; class_id++) {
        float score = load(output, spec.element, first + u64(4 + class_id) * spec.rows);
        if (score > spec.threshold) push(spec, candidates, counts + item, anchor, class_id, score, box);
    }
}

// Mirror of orinoco_cuda::ClassifySpec.
struct ClassifySpec {
    u32 classes;
    u32 element;
    u32 activation;
    u32 background;  // never reported; 0xffffffff: none
    u32 top;
    float threshold;
};

enum Activation { ACTIVATION_AUTO, ACTIVATION_NONE, ACTIVATION_SOFTMAX, ACTIVATION_SIGMOID };

// Mirror of orinoco_cuda::ClassValue.
struct ClassValue {
    u32 class_id;
    float score;
};

// Threads of a block. launch.rs counts on them, and they are a power of two.
static constexpr u32 CLASSIFY_THREADS = 256;
// How far the sum of values may be from 1 for them to be taken as probabilities.
static constexpr float SUM_SLACK = 0.05f;
static constexpr u32 NO_CLASS = 0xffffffffu;

// Whether (`score`, `class_id`) comes before (`other`, `other_id`): the greater score first, then the lower class.
static __device__ inline bool comes_before(float score, u32 class_id, float other, u32 other_id) {
    u32 a = total_order(score), b = total_order(other);
    return a != b ? a > b : class_id < other_id;
}

// The best classes of each picture. One block for each.
extern "C" __global__ void classify(ClassifySpec spec, const void *output, ClassValue *best, u32 *counts) {
    __shared__ float values[CLASSIFY_THREADS];
    __shared__ u32 ids[CLASSIFY_THREADS];
    u32 item = blockIdx.x, thread = threadIdx.x;
    u64 first = u64(item) * spec.classes;
    // Three sums over all classes: the greatest, whether any is no probability, and the whole.
    float top = -float_of(0x7f800000u), whole = 0.0f;
    u32 improbable = 0;
    for (u32 class_id = thread; class_id < spec.classes; class_id += CLASSIFY_THREADS) {
        float value = load(output, spec.element, first + class_id);
        top = fmaxf(top, value);
        whole += value;
        improbable |= !(value >= 0.0f && value <= 1.0f);
    }
    values[thread] = top;
    ids[thread] = improbable;
    __syncthreads();
    for (u32 half = CLASSIFY_THREADS / 2; half > 0; half /= 2) {
        if (thread < half) {
            values[thread] = fmaxf(values[thread], values[thread + half]);
            ids[thread] |= ids[thread + half];
        }
        __syncthreads();
    }
    top = values[0];
    improbable = ids[0];
    __syncthreads();
    values[thread] = whole;
    __syncthreads();
    for (u32 half = CLASSIFY_THREADS / 2; half > 0; half /= 2) {
        if (thread < half) values[thread] += values[thread + half];
        __syncthreads();
    }
    whole = values[0];
    __syncthreads();
    u32 activation = spec.activation;
    if (activation == ACTIVATION_AUTO) {
        bool probable = !improbable && (fabsf(whole - 1.0f) < SUM_SLACK || spec.classes == 1);
        activation = probable ? ACTIVATION_NONE : ACTIVATION_SOFTMAX;
    }
    float sum = 0.0f;
    if (activation == ACTIVATION_SOFTMAX) {
        for (u32 class_id = thread; class_id < spec.classes; class_id += CLASSIFY_THREADS)
            sum += expf(load(output, spec.element, first + class_id) - top);
        values[thread] = sum;
        __syncthreads();
        for (u32 half = CLASSIFY_THREADS / 2; half > 0; half /= 2) {
            if (thread < half) values[thread] += values[thread + half];
            __syncthreads();
        }
        sum = values[0];
        __syncthreads();
    }
    // The best, then the best of those that come after it, and so on.
    u32 found = 0, last_id = NO_CLASS;
    float last = 0.0f;
    while (found < spec.top) {
        u32 id = NO_CLASS;
        float score = 0.0f;
        for (u32 class_id = thread; class_id < spec.classes; class_id += CLASSIFY_THREADS) {
            float value = load(output, spec.element, first + class_id);
            if (activation == ACTIVATION_SOFTMAX) value = expf(value - top) / sum;
            if (activation == ACTIVATION_SIGMOID) value = 1.0f / (1.0f + expf(-value));
            bool candidate = class_id != spec.background && value >= spec.threshold;
            bool next = last_id == NO_CLASS || comes_before(last, last_id, value, class_id);
            if (candidate && next && (id == NO_CLASS || comes_before(value, class_id, score, id))) {
                id = class_id;
                score = value;
            }
        }
        values[thread] = score;
        ids[thread] = id;
        __syncthreads();
        for (u32 half = CLASSIFY_THREADS / 2; half > 0; half /= 2) {
            if (thread < half) {
                u32 other = ids[thread + half];
                float other_score = values[thread + half];
                bool better = other != NO_CLASS &&
                              (ids[thread] == NO_CLASS || comes_before(other_score, other, values[thread], ids[thread]));
                if (better) {
                    ids[thread] = other;
                    values[thread] = other_score;
                }
            }
            __syncthreads();
        }
        last_id = ids[0];
        last = values[0];
        __syncthreads();
        if (last_id == NO_CLASS) break;
        if (thread == 0) {
            ClassValue value = {last_id, last};
            best[u64(item) * spec.top + found] = value;
        }
        found++;
    }
    if (thread == 0) counts[item] = found;
}
