// Logits of all tensor parallel ranks, whose heads have a share of the vocabulary each, side by
// side on the first ranks. Source: model specification section 5. Launch contract (host twin:
// launch_shape in all_gather.space.hpp)
//   grid (min(ceil(rows * share / 4 / THREADS), BLOCKS))   block (THREADS)   cluster none   smem
//   none arch sm_80 and later   programmatic dependent launch: yes all ranks launch the same
//   exchanges in the same order; the kernels of one exchange wait for each other: each runs on a
//   card of its own, or all grids fit beside each other on one
//
// Ranks push; a flag per rank and block says that a block's part lies there. A destination that has
// come so far has read what it got before: an all-reduce of the same step lies between.
//
// NaN and infinity are copied like any other. A rank that does not answer within the limit leaves
// `out` undefined and the status word not LINK_GOOD.
#include "all_gather.args.h"
#include "common/launch.cuh"
#include "common/peer_wait.cuh"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "all_gather.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(RANKS >= 2 && RANKS <= LINK_RANKS, "as many places");
static_assert(THREADS >= LINK_COUNTERS, "a thread per counter");
static_assert(BLOCKS <= LINK_COUNTERS, "a counter per block");

extern "C" __global__ void __launch_bounds__(THREADS)
    all_gather(const __grid_constant__ AllGatherArgs args) {
  release_successor();
  wait_for_predecessor();
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const u32 count = peer::next_count(args.counts[block]);
  if (args.parts & EXCHANGE_SEND) {
    const i64 row_vectors = args.share / 4, vectors = args.rows * row_vectors;
    const i64 step = static_cast<i64>(gridDim.x) * THREADS;
    for (i64 v = static_cast<i64>(block) * THREADS + thread; v < vectors; v += step) {
      const float4 values = reinterpret_cast<const float4*>(args.from)[v];
      const i64 row = v / row_vectors;
      const i64 to = (row * RANKS + args.rank) * row_vectors + v % row_vectors;
      for (int r = 0; r < args.destinations; ++r)
        reinterpret_cast<float4*>(args.out[r])[to] = values;
    }
    __syncthreads();
    // One thread's release covers what the barrier has shown it of the others.
    if (thread < args.destinations && thread != args.rank)
      peer::store_release(args.flags[thread] + args.rank * LINK_COUNTERS + block, count);
  }
  if (args.parts & EXCHANGE_RECEIVE) {
    if (args.rank < args.destinations && thread < RANKS && thread != args.rank) {
      peer::Patience patience(args.status, args.limit_ms);
      const u32* const flag = args.flags[args.rank] + thread * LINK_COUNTERS + block;
      while (peer::load_acquire(flag) != count && patience.look_again()) {
      }
    }
    __syncthreads();  // the whole block has read its count
    peer::write_counts(args.counts, count);
  }
}

}  // namespace ingot::kernels
