// Root mean square norm of rows: y = bf16(w * (x * rsqrt(mean(x^2) + eps))), fp32 until the one
// rounding. Source: model specification section 3.2.
// Launch contract (host twin: RmsNorm::launch_shape in rms_norm.space.hpp)
//   grid (ceil(rows / ROWS_PER_BLOCK))   block (THREADS_PER_ROW, ROWS_PER_BLOCK)   cluster none
//   arch sm_80 and later   smem rms_norm_smem_bytes(...), dynamic   programmatic dependent launch:
//   yes
// A row with NaN or an infinity becomes NaN in all its elements that the weight does not make
// something else; other rows are not touched by it. Rows past the last one are neither read nor
// written.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "rms_norm.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "rms_norm.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int WARPS_PER_ROW = THREADS_PER_ROW / 32;
constexpr int VECTORS = HIDDEN / VECTOR;                                  // of one row
constexpr int STEPS = (VECTORS + THREADS_PER_ROW - 1) / THREADS_PER_ROW;  // of one thread

static_assert(THREADS_PER_ROW % 32 == 0, "a row is shared by whole warps");
static_assert(THREADS_PER_ROW * ROWS_PER_BLOCK <= 1024, "a block has at most 1024 threads");
static_assert(HIDDEN % VECTOR == 0, "a row is whole vectors");

struct RmsNormShared {
  float partial[ROWS_PER_BLOCK][WARPS_PER_ROW];
};
static_assert(sizeof(RmsNormShared) == rms_norm_smem_bytes(ROWS_PER_BLOCK, THREADS_PER_ROW));

extern "C" __global__ void __launch_bounds__(THREADS_PER_ROW* ROWS_PER_BLOCK)
    rms_norm(const RmsNormArgs args) {
  RmsNormShared& shared = *reinterpret_cast<RmsNormShared*>(ptx::dynamic_shared_memory());
  const int row = static_cast<int>(blockIdx.x) * ROWS_PER_BLOCK + static_cast<int>(threadIdx.y);
  const bool has_row = row < args.rows;
  const i64 offset = static_cast<i64>(row) * HIDDEN;

  // Weights do not depend on the predecessor: their loads overlap its end.
  Bf16Vector<VECTOR> weight[STEPS];
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int vector = step * THREADS_PER_ROW + static_cast<int>(threadIdx.x);
    if (vector < VECTORS) weight[step] = Bf16Vector<VECTOR>::load(args.weight + vector * VECTOR);
  }
  wait_for_predecessor();

  Bf16Vector<VECTOR> x[STEPS];
  float squares = 0;
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int vector = step * THREADS_PER_ROW + static_cast<int>(threadIdx.x);
    if (!has_row || vector >= VECTORS) continue;
    x[step] = Bf16Vector<VECTOR>::load(args.input + offset + vector * VECTOR);
  }
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int vector = step * THREADS_PER_ROW + static_cast<int>(threadIdx.x);
    if (!has_row || vector >= VECTORS) continue;
#pragma unroll
    for (const u32 pair : x[step].pairs) {
      const float low = low_to_float(pair);
      const float high = high_to_float(pair);
      squares += low * low;
      squares += high * high;
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  }
  if constexpr (WARPS_PER_ROW > 1) {
    if (threadIdx.x % 32 == 0) shared.partial[threadIdx.y][threadIdx.x / 32] = squares;
    __syncthreads();
    squares = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS_PER_ROW; ++warp)
      squares += shared.partial[threadIdx.y][warp];
  }
  release_successor();
  const float scale = rsqrtf(squares / HIDDEN + args.eps);

#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    const int vector = step * THREADS_PER_ROW + static_cast<int>(threadIdx.x);
    if (!has_row || vector >= VECTORS) continue;
    Bf16Vector<VECTOR> y;
#pragma unroll
    for (int i = 0; i < VECTOR / 2; ++i) {
      y.pairs[i] = pack_bf16(
          low_to_float(weight[step].pairs[i]) * (low_to_float(x[step].pairs[i]) * scale),
          high_to_float(weight[step].pairs[i]) * (high_to_float(x[step].pairs[i]) * scale));
    }
    y.store(args.output + offset + vector * VECTOR);
  }
}

}  // namespace ingot::kernels
