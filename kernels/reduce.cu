// Element by element `into = into op from`, for the collectives. Twin: crates/orinoco-cuda/src/twin.rs.
// Halves are added in f32 and rounded once. Minimum and maximum are those of IEEE 754-2019: NaN wins, and -0 lies below
// +0, so that the result does not depend on the order.

enum Reduction { SUM, MINIMUM, MAXIMUM };

static __device__ inline float reduced(u32 reduction, float a, float b) {
    if (reduction == SUM) return a + b;
    if (a != a || b != b) return float_of(0x7fc00000u);
    bool less = total_order(a) < total_order(b);
    return less == (reduction == MINIMUM) ? a : b;
}

extern "C" __global__ void reduce(void *into, const void *from, u32 element, u32 reduction, u64 count) {
    u64 step = u64(gridDim.x) * blockDim.x;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        store(into, element, i, reduced(reduction, load(into, element, i), load(from, element, i)));
}
