// Rows of the embedding, replicated to the residual streams. Source: model specification sections
// 3.4 and 5. Launch contract (host twin: launch_shape in embedding.space.hpp)
//   grid (ceil(HIDDEN / 8 / THREADS), tokens)   block (THREADS)   cluster none   smem none
//   arch sm_80 and later   programmatic dependent launch: yes
//
// An id outside the table - another rank's, negative, past the vocabulary - gives zeros and reads
// nothing: the sum over ranks is the row, or zero for what is no token. A sum over ranks of STREAMS
// 1 is replicated by this kernel too: `table` is the sum, `ids` count up from 0.
#include "common/bf16.cuh"
#include "common/launch.cuh"
#include "embedding.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "embedding.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

constexpr int VECTOR = 8;
static_assert(HIDDEN % VECTOR == 0, "a row is whole vectors");

extern "C" __global__ void __launch_bounds__(THREADS)
    embedding(const __grid_constant__ EmbeddingArgs args) {
  const int vector = static_cast<int>(blockIdx.x) * THREADS + static_cast<int>(threadIdx.x);
  const i64 token = blockIdx.y;
  release_successor();
  wait_for_predecessor();
  if (vector >= HIDDEN / VECTOR) return;
  // Unsigned: one comparison refuses ids on both sides.
  const i64 row = static_cast<i64>(args.ids[token]) - args.first_row;
  Bf16Vector<VECTOR> values = {};
  if (static_cast<u64>(row) < static_cast<u64>(args.rows))
    values = Bf16Vector<VECTOR>::load(args.table + row * HIDDEN + vector * VECTOR);
#pragma unroll
  for (int s = 0; s < STREAMS; ++s)
    values.store(args.out + (token * STREAMS + s) * HIDDEN + vector * VECTOR);
}

}  // namespace ingot::kernels
