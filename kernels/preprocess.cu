// Frames into a model's input tensor: colour, resize, fit, normalise, in one pass over each frame.
// Twin: crates/orinoco-vision/src/preprocess.rs, which gives the same bits.

// Mirror of orinoco_cuda::PreprocessSpec.
struct PreprocessSpec {
    u32 width;
    u32 height;
    u32 order;       // of channels, see below
    u32 nhwc;        // 0: NCHW
    u32 element;
    float scale[3];
    float shift[3];
    float border[3]; // the value around a letterboxed picture, normalised
};

enum ColorOrder { ORDER_RGB, ORDER_BGR, ORDER_GRAY };

// Output pixels of one block. launch.rs counts on them.
static constexpr u32 TILE_X = 32;
static constexpr u32 TILE_Y = 8;

struct Rgb {
    float r, g, b;
};

// The linear map from Y, U, V to R, G, B samples.
struct YuvToRgb {
    float luma_offset, luma_gain, r_v, g_u, g_v, b_u;
};

static __device__ YuvToRgb yuv_to_rgb(const FrameDesc &frame) {
    float kr = 0.299f, kb = 0.114f;
    if (frame.matrix == BT709) kr = 0.2126f, kb = 0.0722f;
    if (frame.matrix == BT2020) kr = 0.2627f, kb = 0.0593f;
    float kg = 1.0f - kr - kb;
    bool full = frame.range == FULL;
    float chroma_gain = full ? 1.0f : 255.0f / 224.0f;
    YuvToRgb map;
    map.luma_offset = full ? 0.0f : 16.0f;
    map.luma_gain = full ? 1.0f : 255.0f / 219.0f;
    map.r_v = 2.0f * (1.0f - kr) * chroma_gain;
    map.g_u = -2.0f * kb * (1.0f - kb) / kg * chroma_gain;
    map.g_v = -2.0f * kr * (1.0f - kr) / kg * chroma_gain;
    map.b_u = 2.0f * (1.0f - kb) * chroma_gain;
    return map;
}

static __device__ inline float sample_of(float value) { return fminf(fmaxf(value, 0.0f), 255.0f); }

static __device__ inline Rgb convert(const YuvToRgb &map, float y, float u, float v) {
    y = (y - map.luma_offset) * map.luma_gain;
    u -= 128.0f;
    v -= 128.0f;
    Rgb rgb;
    rgb.r = sample_of(y + map.r_v * v);
    rgb.g = sample_of(y + map.g_u * u + map.g_v * v);
    rgb.b = sample_of(y + map.b_u * u);
    return rgb;
}

// Where luma, U and V lie in the bytes of packed 4:2:2: luma in every 2, chroma in every 4.
struct PackedPlaces {
    u32 luma, u, v;
};

static __device__ inline PackedPlaces packed_places(u32 format) {
    PackedPlaces yuy2 = {0, 1, 3}, uyvy = {1, 0, 2};
    return format == UYVY ? uyvy : yuy2;
}

// Between which sample of a line and its successor to blend, and how far towards the successor.
struct Tap {
    u32 first;
    float weight;
};

static __device__ inline Tap tap_at(float position, u32 size) {
    position = fminf(fmaxf(position, 0.0f), float(size - 1));
    Tap tap;
    tap.first = u32(position);
    tap.weight = position - float(tap.first);
    return tap;
}

// The position of output sample `index` of `outputs` over `inputs` samples, pixel centres at one half.
static __device__ inline float centered(u32 index, u32 outputs, u32 inputs) {
    return (float(index) + 0.5f) * float(inputs) / float(outputs) - 0.5f;
}

static __device__ inline float blend(float first, float second, float weight) {
    return first + (second - first) * weight;
}

// Blends four values of one plane, rows before columns. Values of a row lie `step` bytes apart from `place`.
static __device__ inline float sample(
    const u8 *plane, u64 stride, Tap x, Tap y, u32 columns, u32 rows, u32 step, u32 place) {
    const u8 *top = plane + y.first * stride, *bottom = plane + min(y.first + 1, rows - 1) * stride;
    u32 left = x.first * step + place, right = min(x.first + 1, columns - 1) * step + place;
    float first = blend(float(top[left]), float(bottom[left]), y.weight);
    float second = blend(float(top[right]), float(bottom[right]), y.weight);
    return blend(first, second, x.weight);
}

// The frame at the source position (`px`, `py`), as RGB.
static __device__ Rgb bilinear_at(const u8 *bytes, const FrameDesc &frame, const YuvToRgb &map, float px, float py) {
    u32 w = frame.width, h = frame.height, chroma_w = (w + 1) / 2, chroma_h = (h + 1) / 2;
    const u8 *plane = bytes + frame.planes[0].offset;
    u64 stride = frame.planes[0].stride;
    Tap x = tap_at(px, w), y = tap_at(py, h);
    // Chroma lies on even luma columns and between luma rows: chroma_sample_loc_type 0 of H.264 and H.265.
    Tap half_x = tap_at((float(x.first) + x.weight) / 2.0f, chroma_w);
    Tap half_y = tap_at((float(y.first) + y.weight - 0.5f) / 2.0f, chroma_h);
    switch (frame.format) {
        case I420: {
            float luma = sample(plane, stride, x, y, w, h, 1, 0);
            float u = sample(
                bytes + frame.planes[1].offset, frame.planes[1].stride, half_x, half_y, chroma_w, chroma_h, 1, 0);
            float v = sample(
                bytes + frame.planes[2].offset, frame.planes[2].stride, half_x, half_y, chroma_w, chroma_h, 1, 0);
            return convert(map, luma, u, v);
        }
        case NV12: {
            const u8 *chroma = bytes + frame.planes[1].offset;
            float luma = sample(plane, stride, x, y, w, h, 1, 0);
            float u = sample(chroma, frame.planes[1].stride, half_x, half_y, chroma_w, chroma_h, 2, 0);
            float v = sample(chroma, frame.planes[1].stride, half_x, half_y, chroma_w, chroma_h, 2, 1);
            return convert(map, luma, u, v);
        }
        case YUY2:
        case UYVY: {
            PackedPlaces places = packed_places(frame.format);
            float luma = sample(plane, stride, x, y, w, h, 2, places.luma);
            float u = sample(plane, stride, half_x, y, chroma_w, h, 4, places.u);
            float v = sample(plane, stride, half_x, y, chroma_w, h, 4, places.v);
            return convert(map, luma, u, v);
        }
        case GRAY8: {
            float luma = sample(plane, stride, x, y, w, h, 1, 0);
            Rgb gray = {luma, luma, luma};
            return gray;
        }
        default: {
            u32 r = frame.format == BGR ? 2 : 0;
            Rgb rgb;
            rgb.r = sample(plane, stride, x, y, w, h, 3, r);
            rgb.g = sample(plane, stride, x, y, w, h, 3, 1);
            rgb.b = sample(plane, stride, x, y, w, h, 3, 2 - r);
            return rgb;
        }
    }
}

// A pixel as 8-bit RGB, packed into a word, red lowest.
static __device__ u32 pixel_at(const u8 *bytes, const FrameDesc &frame, const YuvToRgb &map, u32 x, u32 y) {
    const u8 *line = bytes + frame.planes[0].offset + y * frame.planes[0].stride;
    float luma, u, v;
    switch (frame.format) {
        case I420:
            luma = float(line[x]);
            u = float(bytes[frame.planes[1].offset + y / 2 * frame.planes[1].stride + x / 2]);
            v = float(bytes[frame.planes[2].offset + y / 2 * frame.planes[2].stride + x / 2]);
            break;
        case NV12: {
            const u8 *pair = bytes + frame.planes[1].offset + y / 2 * frame.planes[1].stride + x / 2 * 2;
            luma = float(line[x]);
            u = float(pair[0]);
            v = float(pair[1]);
            break;
        }
        case YUY2:
        case UYVY: {
            PackedPlaces places = packed_places(frame.format);
            const u8 *pair = line + x / 2 * 4;
            luma = float(pair[places.luma + x % 2 * 2]);
            u = float(pair[places.u]);
            v = float(pair[places.v]);
            break;
        }
        case GRAY8: return line[x] * 0x010101u;
        case BGR: return line[x * 3 + 2] | line[x * 3 + 1] << 8 | line[x * 3] << 16;
        default: return line[x * 3] | line[x * 3 + 1] << 8 | line[x * 3 + 2] << 16;
    }
    Rgb rgb = convert(map, luma, u, v);
    return u32(rgb.r + 0.5f) | u32(rgb.g + 0.5f) << 8 | u32(rgb.b + 0.5f) << 16;
}

// The frame's size when it stands upright.
static __device__ inline u32 upright_width(const FrameDesc &frame) { return frame.orientation & 1 ? frame.height : frame.width; }
static __device__ inline u32 upright_height(const FrameDesc &frame) { return frame.orientation & 1 ? frame.width : frame.height; }

// A place in the upright picture as a place in the frame. A quarter turn clockwise brings (x, y) to (height - 1 - y, x).
template <class T> static __device__ inline T source_x(const FrameDesc &frame, T x, T y) {
    switch (frame.orientation) {
        case ROTATE90: return y;
        case ROTATE180: return T(frame.width - 1) - x;
        case ROTATE270: return T(frame.width - 1) - y;
        default: return x;
    }
}

template <class T> static __device__ inline T source_y(const FrameDesc &frame, T x, T y) {
    switch (frame.orientation) {
        case ROTATE90: return T(frame.height - 1) - x;
        case ROTATE180: return T(frame.height - 1) - y;
        case ROTATE270: return x;
        default: return y;
    }
}

// Normalises a pixel into its place in the tensor.
static __device__ void write(const PreprocessSpec &spec, void *out, u32 item, u32 x, u32 y, Rgb rgb, bool inside) {
    float channels[3] = {rgb.r, rgb.g, rgb.b};
    u32 count = 3;
    if (spec.order == ORDER_BGR) channels[0] = rgb.b, channels[2] = rgb.r;
    if (spec.order == ORDER_GRAY) {
        // Luma weights of BT.601, as JPEG and Pillow's mode L use.
        channels[0] = 0.299f * rgb.r + 0.587f * rgb.g + 0.114f * rgb.b;
        count = 1;
    }
    u64 area = u64(spec.width) * spec.height, pixel = u64(y) * spec.width + x, first = item * count * area;
    for (u32 channel = 0; channel < count; channel++) {
        float value = inside ? channels[channel] * spec.scale[channel] + spec.shift[channel] : spec.border[channel];
        u64 place = spec.nhwc ? first + pixel * count + channel : first + channel * area + pixel;
        store(out, spec.element, place, value);
    }
}

extern "C" __global__ void preprocess_bilinear(const FrameEntry *table, PreprocessSpec spec, void *out) {
    const FrameEntry &entry = table[blockIdx.z];
    if (entry.address == 0) return;
    const FrameDesc &frame = entry.frame;
    __shared__ YuvToRgb map;
    if (threadIdx.x == 0 && threadIdx.y == 0) map = yuv_to_rgb(frame);
    __syncthreads();
    u32 x = blockIdx.x * TILE_X + threadIdx.x, y = blockIdx.y * TILE_Y + threadIdx.y;
    if (x >= spec.width || y >= spec.height) return;
    // Left of the picture these wrap around, and so are not less than its size.
    u32 px = x - u32(entry.offset_x), py = y - u32(entry.offset_y);
    bool inside = px < entry.size_x && py < entry.size_y;
    Rgb rgb = {0.0f, 0.0f, 0.0f};
    if (inside) {
        float ux = centered(px, entry.size_x, upright_width(frame));
        float uy = centered(py, entry.size_y, upright_height(frame));
        rgb = bilinear_at((const u8 *)entry.address, frame, map, source_x(frame, ux, uy), source_y(frame, ux, uy));
    }
    write(spec, out, blockIdx.z, x, y, rgb, inside);
}

// Bits of a weight's fraction: 32, less 8 of the sample and 2 against overflow.
static constexpr u32 WEIGHT_BITS = 22;

// The taps of one output sample: the first input sample, their number, and their weights. `index` counts from the first
// output sample that lies in the model's input.
struct Taps {
    u32 first, count;
    const i32 *weights;
};

static __device__ inline Taps taps_of(const i32 *filters, u32 axis, u32 taps_max, u32 index) {
    const i32 *record = filters + axis + u64(index) * (2 + taps_max);
    Taps taps = {u32(record[0]), u32(record[1]), record + 2};
    return taps;
}

struct Sums {
    i32 r, g, b;
};

static __device__ inline void add(Sums &sums, u32 pixel, i32 weight) {
    sums.r += i32(pixel & 255) * weight;
    sums.g += i32(pixel >> 8 & 255) * weight;
    sums.b += i32(pixel >> 16 & 255) * weight;
}

static __device__ inline i32 rounded(i32 sum) { return min(max(sum >> WEIGHT_BITS, 0), 255); }

// Pillow's `BILINEAR`, columns before rows, each pass rounded to 8 bits. A block makes a tile of the output: it filters
// TILE_Y input rows at a time across, keeps them in shared memory, and adds them to the outputs that they belong to.
extern "C" __global__ void preprocess_antialias(
    const FrameEntry *table, PreprocessSpec spec, const i32 *filters, void *out) {
    const FrameEntry &entry = table[blockIdx.z];
    if (entry.address == 0) return;
    const FrameDesc &frame = entry.frame;
    const u8 *bytes = (const u8 *)entry.address;
    __shared__ YuvToRgb map;
    __shared__ u32 across[TILE_Y][TILE_X];
    if (threadIdx.x == 0 && threadIdx.y == 0) map = yuv_to_rgb(frame);
    __syncthreads();
    u32 x = blockIdx.x * TILE_X + threadIdx.x, top = blockIdx.y * TILE_Y, y = top + threadIdx.y;
    u32 px = x - u32(entry.offset_x), py = y - u32(entry.offset_y);
    bool in_columns = x < spec.width && px < entry.size_x;
    bool inside = in_columns && y < spec.height && py < entry.size_y;
    const i32 half = 1 << (WEIGHT_BITS - 1);
    Sums down = {half, half, half};
    u32 cut_x = u32(max(-entry.offset_x, 0)), cut_y = u32(max(-entry.offset_y, 0));
    // The tile's rows of the picture, and so the input rows that they need: the same for every thread of the block.
    i32 first_row = max(i32(top) - entry.offset_y, 0);
    i32 last_row = min(i32(min(top + TILE_Y, spec.height)) - entry.offset_y, i32(entry.size_y)) - 1;
    if (first_row <= last_row) {
        Taps highest = taps_of(filters, entry.filter_y, entry.taps_y, u32(first_row) - cut_y);
        Taps lowest = taps_of(filters, entry.filter_y, entry.taps_y, u32(last_row) - cut_y);
        Taps columns = taps_of(filters, entry.filter_x, entry.taps_x, in_columns ? px - cut_x : 0);
        Taps rows = taps_of(filters, entry.filter_y, entry.taps_y, (inside ? py : u32(first_row)) - cut_y);
        u32 end = lowest.first + lowest.count;
        for (u32 chunk = highest.first; chunk < end; chunk += TILE_Y) {
            u32 input_row = chunk + threadIdx.y;
            if (in_columns && input_row < end) {
                Sums sums = {half, half, half};
                for (u32 tap = 0; tap < columns.count; tap++) {
                    u32 input_column = columns.first + tap;
                    u32 sx = source_x(frame, input_column, input_row), sy = source_y(frame, input_column, input_row);
                    add(sums, pixel_at(bytes, frame, map, sx, sy), columns.weights[tap]);
                }
                across[threadIdx.y][threadIdx.x] = u32(rounded(sums.r) | rounded(sums.g) << 8 | rounded(sums.b) << 16);
            }
            __syncthreads();
            if (inside) {
                u32 from = max(chunk, rows.first), to = min(min(chunk + TILE_Y, end), rows.first + rows.count);
                for (u32 row = from; row < to; row++) add(down, across[row - chunk][threadIdx.x], rows.weights[row - rows.first]);
            }
            __syncthreads();
        }
    }
    if (x >= spec.width || y >= spec.height) return;
    Rgb rgb = {float(rounded(down.r)), float(rounded(down.g)), float(rounded(down.b))};
    write(spec, out, blockIdx.z, x, y, rgb, inside);
}
