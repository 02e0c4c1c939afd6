#pragma once
// One function per PTX instruction that the compiler has no name for. Shared-memory addresses are
// 32-bit (shared_address), as the instructions take them.
#include "common/types.cuh"

namespace ingot::kernels::ptx {

// The block's dynamic shared memory.
__forceinline__ u8* dynamic_shared_memory() {
  extern __shared__ __align__(1024) u8 dynamic_shared[];
  return dynamic_shared;
}
__forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// ---- registers and shared memory

// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__forceinline__ void load_matrices(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// The same, each matrix transposed: lane 4g + c gets elements (2c, g) and (2c + 1, g).
__forceinline__ void load_matrices_transposed(u32 (&r)[4], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// Two matrices; lanes 0-15 give the addresses.
__forceinline__ void load_matrices(u32 (&r)[2], u32 address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(address)
               : "memory");
}
// Transposes an 8x8 matrix of 16-bit elements held as mma fragments hold it: lane 4r + c has
// elements (r, 2c) and (r, 2c + 1), before and after.
__forceinline__ u32 transpose_matrix(u32 fragment) {
  u32 result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(fragment));
  return result;
}
// Two floats; volatile, so that the load stays where it is written.
__forceinline__ float2 load_shared(u32 from) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(from)
               : "memory");
  return value;
}
__forceinline__ float load_shared_float(u32 from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
  return value;
}
__forceinline__ void store_shared(u32 to, uint2 value) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(value.x), "r"(value.y) : "memory");
}
__forceinline__ void store_shared(u32 to, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
__forceinline__ uint4 load_shared_words(u32 from) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
// Byte i of the result is the byte of {high, low} that nibble i of `selectors` (0 to 7) names.
__forceinline__ u32 permute(u32 low, u32 high, u32 selectors) {
  u32 result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selectors));
  return result;
}
// The larger of each half.
__forceinline__ u32 max_u16x2(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
  u32 result;
  asm("max.u16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
#else
  return max(a & 0xffffu, b & 0xffffu) | max(a >> 16, b >> 16) << 16;
#endif
}
// Named barrier of `threads` threads of the block; id 0 is __syncthreads.
__forceinline__ void sync_threads(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// The same barrier, and whether `predicate` held in any of its threads.
__forceinline__ bool sync_threads_or(int id, int threads, bool predicate) {
  int any;
  asm volatile(
      "{.reg .pred in, out;\n"
      "setp.ne.b32 in, %3, 0;\n"
      "barrier.cta.red.or.pred out, %1, %2, in;\n"
      "selp.b32 %0, 1, 0, out;}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(static_cast<int>(predicate))
      : "memory");
  return any != 0;
}
// Counts towards sync_threads(id, threads) of other warps without waiting.
__forceinline__ void arrive_threads(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- asynchronous 16-byte copies (sm_80)

__forceinline__ void copy16_async(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
// 8 bytes, for what is not a multiple of 16 (goes through L1).
__forceinline__ void copy8_async(u32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}
__forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most PENDING of this thread's newest groups are still in flight.
template <int PENDING>
__forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- global memory past L1

__forceinline__ void store_relaxed(void* to, uint2 value) {
  asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(value.x), "r"(value.y)
               : "memory");
}
__forceinline__ void store_relaxed(void* to, u32 value) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__forceinline__ uint2 load_relaxed_pair(const void* from) {
  uint2 value;
  asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];"
               : "=r"(value.x), "=r"(value.y)
               : "l"(from)
               : "memory");
  return value;
}

__forceinline__ void store_relaxed(void* to, uint4 value) {
  asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x),
               "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}
__forceinline__ uint4 load_relaxed(const void* from) {
  uint4 value;
  asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}
__forceinline__ u32 load_relaxed_word(const void* from) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
// threadIdx.x, read where it is written: what is computed from it takes no register before.
__forceinline__ int thread_here() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
// Read-only data; volatile so that the load stays where it is written, ahead of its use.
__forceinline__ u32 load_byte(const void* from) {
  u32 value;
  asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(value) : "l"(from));
  return value;
}
__forceinline__ int load_int(const int* from) {
  int value;
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(value) : "l"(from));
  return value;
}
__forceinline__ float load_float(const float* from) {
  float value;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(from));
  return value;
}
__forceinline__ uint2 load_pair(const void* from) {
  uint2 value;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "l"(from));
  return value;
}
// Read-only data that is read once.
__forceinline__ uint4 load_words(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}
__forceinline__ u32 load_word(const void* from) {
  u32 value;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(from));
  return value;
}

// ---- registers of a warpgroup (sm_90a), within the block's allocation at launch

template <int REGISTERS>
__forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

}  // namespace ingot::kernels::ptx
