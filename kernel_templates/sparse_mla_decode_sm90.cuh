// Sparse MLA decode on Hopper's wgmma, for many heads per block. What it computes, its arguments,
// numerics and contracts are those of sparse_mla_decode.cuh.
// Launch contract (host twin: launch_shape in sparse_mla_decode_sm90.space.hpp)
//   grid (NSPLIT, heads / TILE_HEADS, rows)   block (512)   arch sm_90a
//   smem sparse_mla_decode_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   NSPLIT > 1: all blocks of the launch are resident at once (checked by the host), and the
//   exchange buffers hold 0xff bytes; one launch at a time uses them
//
// The work of the warps: common/sparse_mla_warpgroups.cuh.
#include "common/launch.cuh"
#include "sparse_mla_decode_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sparse_mla_decode_sm90.params.def"
#undef PARAM
#endif
constexpr bool BULK_COPY = true;
#include "common/sparse_mla_warpgroups.cuh"

namespace ingot::kernels {

using sparse_mla::THREADS, sparse_mla::VALUE_THREADS;
constexpr int PIECES = NSPLIT;
static_assert(NSPLIT >= 1 && NSPLIT <= 64 && MLA_DIMS % (4 * NSPLIT) == 0, "whole float4s");

struct alignas(128) SharedStorage : sparse_mla::TileStorage {
  float2 rotations[MLA_ROPE_DIMS / 2];
  float pieces[PIECES][TILE_HEADS];  // factors of the pieces' O
  float sinks[TILE_HEADS];           // -inf without
};
constexpr int SMEM_BYTES =
    sparse_mla_decode_sm90_smem_bytes(TILE_HEADS, STAGES, NSPLIT, SCALES_BESIDE);
static_assert(sizeof(SharedStorage) <= SMEM_BYTES, "the host's formula covers the storage");
static_assert(sizeof(SharedStorage) + 127 >= SMEM_BYTES, "the host's formula wastes nothing");

__forceinline__ float first_sink(const SharedStorage& shared, int thread) {
  const int head = sparse_mla::Merge<PIECES>::first_head(thread);
  return head < TILE_HEADS ? shared.sinks[head] : sparse_mla::negative_infinity();
}

// A split row: partial results go to the sibling blocks; this block finishes its share of
// dimensions.
__forceinline__ void exchange_and_write(const sparse_mla::Values& values, SharedStorage& shared,
                                        const SparseMlaDecodeArgs& args, int row, int first_head,
                                        int split) {
  const i64 tile = static_cast<i64>(row) * gridDim.y + blockIdx.y;
  float* const sent = args.exchange_values + tile * (PIECES * TILE_HEADS * MLA_DIMS);
  float2* const sums =
      reinterpret_cast<float2*>(args.exchange_sums) + tile * (NSPLIT * PIECES * TILE_HEADS);
  float* const mine = sent + split * (TILE_HEADS * MLA_DIMS) + values.first_place();
  values.for_each_result([&](int offset, int, int, float first, float second, int distance) {
    if (distance == 1) {
      sparse_mla::send(mine + offset, first, second);
    } else {
      sparse_mla::send(mine + offset, first);
      sparse_mla::send(mine + offset + distance, second);
    }
  });
  for (int i = values.thread; i < NSPLIT * TILE_HEADS; i += VALUE_THREADS) {
    const float2 total = shared.totals[i % TILE_HEADS];
    sparse_mla::send(reinterpret_cast<float*>(
                         sums + (i / TILE_HEADS * PIECES + split) * TILE_HEADS + i % TILE_HEADS),
                     total.x, total.y);
  }
  const sparse_mla::Receiver<PIECES, NSPLIT, TILE_HEADS, VALUE_THREADS, HAS_SINK, INVERSE_ROPE>
      receiver{sent, sums + split * (PIECES * TILE_HEADS), shared.sinks,
               first_sink(shared, values.thread)};
  receiver.run(args, shared.pieces, row, first_head, split, values.thread, shared.rotations,
               [] { sparse_mla::Values::sync(); });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sparse_mla_decode_sm90(const __grid_constant__ SparseMlaDecodeArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int split = blockIdx.x, row = blockIdx.z, first_head = blockIdx.y * TILE_HEADS;

  if (warp == sparse_mla::FIRST_PRODUCER) sparse_mla::set_up_barriers(shared, lane);
  release_successor();
  wait_for_predecessor();

  const auto tiles_of_piece = [&] {
    const int count =
        ptx::load_int(args.window_counts + row) + sparse_mla::selected_count(args, row);
    const sparse_mla::Piece piece = sparse_mla::piece_of<PIECES>(count, split);
    return (piece.end - piece.begin + sparse_mla::TILE_KV - 1) / sparse_mla::TILE_KV;
  };
  if (warp >= sparse_mla::FIRST_PRODUCER) {
    ptx::give_registers<sparse_mla::PRODUCER_REGISTERS>();
    if (warp == sparse_mla::FIRST_PRODUCER && lane == 0) {
      // Nothing can start without it.
      const u32 q_full = ptx::shared_address(&shared.q_full);
      barrier::arrive_expect(q_full, sparse_mla::Q_BYTES);
      barrier::copy_bulk(ptx::shared_address(shared.q),
                         args.q + (static_cast<i64>(row) * args.heads + first_head) * MLA_DIMS,
                         sparse_mla::Q_BYTES, q_full);
    }
    __syncwarp();
    sparse_mla::ring_of(shared, warp - sparse_mla::FIRST_PRODUCER, lane)
        .produce<PIECES>(args, sparse_mla::Keys(args, row), row, split);
  } else if (warp < sparse_mla::FIRST_VALUE_WARP) {
    ptx::give_registers<sparse_mla::SCORE_REGISTERS>();
    const sparse_mla::Scores scores(shared);
    const int tiles = tiles_of_piece();
    __syncthreads();  // barriers are set up; all roles call it once
    sparse_mla::Role::wait(shared.q_full, 0);
    scores.convert_q();
    sparse_mla::Place at;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      scores.make(at, tile == 0, [] {});
      at.advance();
    }
  } else {
    ptx::take_registers<sparse_mla::VALUE_REGISTERS>();
    sparse_mla::Values values(shared);
    float sink = sparse_mla::negative_infinity();
    if (HAS_SINK && values.thread < TILE_HEADS)
      sink = ptx::load_float(args.sink + first_head + values.thread);
    const int tiles = tiles_of_piece();
    __syncthreads();
    if (values.thread < TILE_HEADS) shared.sinks[values.thread] = sink;
    if (INVERSE_ROPE && values.warp == 0) {
      sparse_mla::RotationInputs rotation;
      rotation.request(args, row, lane);
      rotation.store(shared.rotations, lane);
    }
    values.clear();
    sparse_mla::Place at;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      values.take(at, tile == 0);
      at.advance();
    }
    values.finish();
    sparse_mla::Values::sync();
    if constexpr (NSPLIT == 1) {
      using Weights = sparse_mla::Merge<1>;
      if (values.thread < TILE_HEADS)
        shared.pieces[0][values.thread] =
            Weights::factor(shared.totals[values.thread], shared.sinks[values.thread]);
      sparse_mla::Values::sync();
      values.write<INVERSE_ROPE>(
          args.out + (static_cast<i64>(row) * args.heads + first_head) * MLA_DIMS, shared.pieces[0],
          shared.rotations);
    } else {
      exchange_and_write(values, shared, args, row, first_head, split);
    }
  }
}

}  // namespace ingot::kernels
