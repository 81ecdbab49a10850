// Tensors from one element type to another. Twin: crates/orinoco-cuda/src/twin.rs.

extern "C" __global__ void convert(const void *from, u32 from_element, void *to, u32 to_element, u64 count) {
    u64 step = u64(gridDim.x) * blockDim.x;
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step)
        store(to, to_element, i, load(from, from_element, i));
}
