// What every kernel shares. There is no `#include` here, because NVRTC has no host headers: compile.py puts this file
// before each source, and the tests do the same when they compile the kernels as C++ for the CPU.
//
// Arithmetic is compiled with --fmad=false: nothing is fused, so that a kernel gives the bits of its Rust twin.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;

// Mirror of orinoco_core::Plane.
struct Plane {
    u64 offset;
    u64 stride;
};

// Mirror of orinoco_core::FrameDesc. crates/orinoco-cuda/src/table.rs asserts the same offsets.
struct FrameDesc {
    u8 format;
    u32 width;
    u32 height;
    Plane planes[4];
    u8 matrix;
    u8 range;
    u8 orientation;
    u8 memory;
    u64 pts;
    u8 clock;
    u64 wall;
    u64 seq;
    u32 stream;
};

// Mirror of orinoco_cuda::FrameEntry: a frame, where its bytes are, and where it lies in the model's input.
struct FrameEntry {
    u64 address;     // of the frame's buffer; 0 where the batch is not full
    FrameDesc frame;
    i32 offset_x;    // of the upright picture in the model's input; negative where it is cut
    i32 offset_y;
    u32 size_x;      // of the upright picture after the resize, before any cut
    u32 size_y;
    float scale_x;   // model pixels for each pixel of the upright frame
    float scale_y;
    u32 filter_x;    // antialiased only: first word of the axis in the filter table,
    u32 filter_y;
    u32 taps_x;      // and the most taps of one output sample
    u32 taps_y;
};

static_assert(sizeof(Plane) == 16 && sizeof(FrameDesc) == 128 && sizeof(FrameEntry) == 176, "as in Rust");

enum PixelFormat { I420, NV12, YUY2, UYVY, RGB, BGR, GRAY8 };
enum ColorMatrix { BT601, BT709, BT2020 };
enum ColorRange { LIMITED, FULL };
enum Orientation { UPRIGHT, ROTATE90, ROTATE180, ROTATE270 };

// Mirror of orinoco_cuda::Element.
enum Element { ELEMENT_F32, ELEMENT_F16, ELEMENT_BF16, ELEMENT_U8 };

// Mirror of orinoco_cuda::Candidate: a box before suppression, in pixels of the upright frame.
struct Candidate {
    u32 class_id;
    float score;
    float x1;
    float y1;
    float x2;
    float y2;
    u32 index;       // its place in the model's output: what is equal in all else is ordered by it
};

static __device__ inline u32 bits_of(float value) {
    union { float value; u32 bits; } both;
    both.value = value;
    return both.bits;
}

static __device__ inline float float_of(u32 bits) {
    union { u32 bits; float value; } both;
    both.bits = bits;
    return both.value;
}

// Grows as Rust's `f32::total_cmp` does.
static __device__ inline u32 total_order(float value) {
    u32 bits = bits_of(value);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// To binary16, ties to even. Any NaN becomes 0x7fff, as the hardware makes it.
static __device__ inline u16 f16_of(float value) {
#ifdef __CUDA_ARCH__
    u16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
#else
    u32 bits = bits_of(value), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return 0x7fff;
    if (magnitude >= 0x47800000u) return u16(sign | 0x7c00u);
    if (magnitude < 0x33000000u) return u16(sign);
    u32 exponent = magnitude >> 23, mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    // Subnormal below 2^-14: its last place is 2^-24 whatever the exponent.
    u32 shift = exponent < 113 ? 126 - exponent : 13;
    u32 kept = exponent < 113 ? mantissa >> shift : (magnitude >> 13) - (112u << 10);
    u32 rest = mantissa & ((1u << shift) - 1), middle = 1u << (shift - 1);
    kept += rest > middle || (rest == middle && (kept & 1));
    return u16(sign | kept);
#endif
}

static __device__ inline float float_of_f16(u16 half) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
#else
    u32 sign = u32(half & 0x8000u) << 16, exponent = half >> 10 & 0x1f, mantissa = half & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {
        float value = float(mantissa) * 5.9604644775390625e-8f;   // 2^-24
        return sign ? -value : value;
    }
    return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
#endif
}

// To bfloat16, ties to even. By integers, because sm_72 has no instruction for it.
static __device__ inline u16 bf16_of(float value) {
    u32 bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return u16((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static __device__ inline float float_of_bf16(u16 half) { return float_of(u32(half) << 16); }

// To 0..=255, ties to even, NaN to 0: Rust's `round_ties_even() as u8`.
static __device__ inline u8 u8_of(float value) {
    return value > 0.0f ? u8(rintf(fminf(value, 255.0f))) : 0;
}

// Stores element `index` of a tensor.
static __device__ inline void store(void *tensor, u32 element, u64 index, float value) {
    switch (element) {
        case ELEMENT_F16: ((u16 *)tensor)[index] = f16_of(value); break;
        case ELEMENT_BF16: ((u16 *)tensor)[index] = bf16_of(value); break;
        case ELEMENT_U8: ((u8 *)tensor)[index] = u8_of(value); break;
        default: ((float *)tensor)[index] = value;
    }
}

// Element `index` of a tensor.
static __device__ inline float load(const void *tensor, u32 element, u64 index) {
    switch (element) {
        case ELEMENT_F16: return float_of_f16(((const u16 *)tensor)[index]);
        case ELEMENT_BF16: return float_of_bf16(((const u16 *)tensor)[index]);
        case ELEMENT_U8: return float(((const u8 *)tensor)[index]);
        default: return ((const float *)tensor)[index];
    }
}
