// Joins the partial results of split-KV attention: out = sum_s w_s o_s / (sum_s w_s + exp(sink -
// m)), w_s = exp(lse_s - m), m = max_s lse_s. Splits are added in ascending order: deterministic.
// Launch contract (host twin: launch_shape in split_kv_combine.space.hpp)
//   grid (heads / HEADS, batch)   block (128 * HEADS)   arch sm_80 and later
//   smem none   programmatic dependent launch: yes
//
// An empty split (lse -inf) has weight 0 and its values are not read. A row whose splits are all
// empty is zero, whatever the sink. A sink of -inf adds nothing; one far above m makes the row
// zero, as in exact arithmetic. NaN in a split that is not empty gives NaN in that head's row only.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "common/rope.cuh"
#include "split_kv_combine.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "split_kv_combine.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(NSPLIT >= 1 && NSPLIT <= 128 && HEADS >= 1 && HEADS <= 8, "a block is 128 to 1024");

constexpr int THREAD_DIMS = 4, HEAD_THREADS = COMBINE_DIMS / THREAD_DIMS;
constexpr int BATCH = NSPLIT < 8 ? NSPLIT : 8;  // loads in flight

__forceinline__ float4 load_partial(const void* partial, i64 row, int dim) {
  if constexpr (PARTIAL_BF16) {
    const uint2 words = *reinterpret_cast<const uint2*>(static_cast<const bf16*>(partial) +
                                                        row * COMBINE_DIMS + dim);
    return make_float4(low_to_float(words.x), high_to_float(words.x), low_to_float(words.y),
                       high_to_float(words.y));
  } else {
    return *reinterpret_cast<const float4*>(static_cast<const float*>(partial) +
                                            row * COMBINE_DIMS + dim);
  }
}

// The 1 lets a thread have the registers it asks for: without it, sixteen bf16 splits spill on
// sm_100a.
extern "C" __global__ void __launch_bounds__(HEAD_THREADS* HEADS, 1)
    split_kv_combine(const __grid_constant__ SplitKvCombineArgs args) {
  const int head = blockIdx.x * HEADS + threadIdx.x / HEAD_THREADS, request = blockIdx.y;
  const int dim = threadIdx.x % HEAD_THREADS * THREAD_DIMS;
  const float negative_infinity = __uint_as_float(0xff800000u);
  release_successor();
  wait_for_predecessor();
  const i64 first = static_cast<i64>(request) * NSPLIT * args.heads + head;

  float largest = negative_infinity;
#pragma unroll 8
  for (int s = 0; s < NSPLIT; ++s)
    largest = fmaxf(largest, args.lse[first + s * args.heads]);

  float sum[THREAD_DIMS] = {}, total = 0.0f;
  for (int begin = 0; begin < NSPLIT; begin += BATCH) {
    float lse[BATCH];
    float4 values[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const bool exists = begin + i < NSPLIT;
      lse[i] = exists ? args.lse[first + (begin + i) * args.heads] : negative_infinity;
      if (lse[i] != negative_infinity)
        values[i] = load_partial(args.partial, first + (begin + i) * args.heads, dim);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (lse[i] == negative_infinity) continue;
      const float weight = expf(lse[i] - largest);
      total += weight;
      sum[0] = fmaf(weight, values[i].x, sum[0]);
      sum[1] = fmaf(weight, values[i].y, sum[1]);
      sum[2] = fmaf(weight, values[i].z, sum[2]);
      sum[3] = fmaf(weight, values[i].w, sum[3]);
    }
  }
  if (HAS_SINK && total != 0.0f) total += expf(args.sink[head] - largest);
  u32 words[THREAD_DIMS / 2];
#pragma unroll
  for (int i = 0; i < THREAD_DIMS / 2; ++i)
    words[i] = total == 0.0f ? 0u : pack_bf16(sum[2 * i] / total, sum[2 * i + 1] / total);
  if (INVERSE_ROPE && dim >= COMBINE_DIMS - COMBINE_ROPE_DIMS) {
    const int position = args.positions[request];
#pragma unroll
    for (int i = 0; i < THREAD_DIMS / 2; ++i) {
      const int pair = (dim - (COMBINE_DIMS - COMBINE_ROPE_DIMS)) / 2 + i;
      const float2 turned = rope::rotate(low_to_float(words[i]), high_to_float(words[i]),
                                         rope::rotation(position, args.frequencies[pair]), true);
      words[i] = pack_bf16(turned.x, turned.y);
    }
  }
  *reinterpret_cast<uint2*>(args.out +
                            (static_cast<i64>(request) * args.heads + head) * COMBINE_DIMS + dim) =
      make_uint2(words[0], words[1]);
}

}  // namespace ingot::kernels
