// y_g = x_g * W_g^T for each group of columns: bf16 inputs, e4m3 weights with a ue8m0 scale per 128
// x 128, fp32 sums, bf16 out: the first half of the attention's output projection. The inputs are
// not quantised. Source: model specification section 3.6, step 8, and trap 29. Launch contract
// (host twin: launch_shape in grouped_linear.space.hpp)
//   grid (SPLIT_K, token tiles, blocks that share the strips)
//     all resident at once when SPLIT_K > 1
//   block (256 * K_GROUPS)   cluster none   smem grouped_linear_smem_bytes(...), dynamic
//   arch sm_80 and later; BULK_COPY sm_90 and later   programmatic dependent launch: yes
//
// As fp8_linear: weight rows are M, tokens are N, a tile is 128 rows x 128 columns, warp w
// multiplies lines 16w .. 16w + 15. A strip of 128 rows lies in one group, which says where its
// input is. Codes become bf16 exactly, in registers; a lane has four neighbouring columns of a code
// fragment, and takes the same four of the input. With two groups of warps each takes half of a
// tile's columns: a warp's way through a tile is a chain of conversions and products, and two of
// them on a scheduler do not keep up with the memory.
//
// Products are exact, sums fp32 over 128 columns, then scaled and added. For one variant they have
// one order, whatever the batch. NaN or infinity in a token stays in that token's output.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/fp8_bf16.cuh"
#include "common/fp8_linear.cuh"
#include "common/launch.cuh"
#include "common/linear_work.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/split_k.cuh"
#include "grouped_linear.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "grouped_linear.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 8 || TOKENS == 16 || TOKENS == 32 || TOKENS == 64,
              "TOKENS is a whole number of mma columns whose sums fit registers");
static_assert(COLS % FP8_TILE == 0, "K is whole tiles");
static_assert(STAGES >= 2 && SPLIT_K >= 1, "a ring has two stages at least");

static_assert(K_GROUPS == 1 || K_GROUPS == 2, "a tile's columns are shared by one or two groups");

constexpr int GROUP_THREADS = 256, THREADS = GROUP_THREADS * K_GROUPS;
constexpr int TOKEN_BLOCKS = TOKENS / 8;
constexpr int K_TILES = COLS / FP8_TILE;
constexpr int HALF_BYTES = TOKENS * GROUPED_LINE;  // of 64 columns of the input
using Work = linear::TileWork<K_TILES, TOKENS, SPLIT_K>;
using Cursor = linear::TileCursor<Work, STAGES>;

// Offsets in shared memory.
constexpr int INPUTS = STAGES * FP8_TILE_BYTES;
constexpr int SUMS = INPUTS + STAGES * 2 * HALF_BYTES;
constexpr int FULL = SUMS + grouped_linear_sum_bytes(TOKENS, K_GROUPS);
static_assert(FULL + STAGES * 8 == grouped_linear_smem_bytes(TOKENS, STAGES, K_GROUPS),
              "host and device agree on the shared memory");

__forceinline__ void copy_weights(const GroupedLinearArgs& args, const Work& work, u32 shared,
                                  const Cursor& at) {
  if (BULK_COPY && threadIdx.x != 0) return;
  const fp8_e4m3* from =
      args.weight + (static_cast<i64>(at.strip) * K_TILES + work.k_begin + at.k) * FP8_TILE_BYTES;
  const u32 to = shared + at.stage * FP8_TILE_BYTES;
  if constexpr (BULK_COPY) {
    const u32 full = shared + FULL + at.stage * 8;
    barrier::arrive_expect(full, FP8_TILE_BYTES);
    barrier::copy_bulk(to, from, FP8_TILE_BYTES, full, barrier::evict_first_policy());
  } else {
    const u32 offset = threadIdx.x * 16;
#pragma unroll
    for (u32 i = 0; i < FP8_TILE_BYTES; i += THREADS * 16)
      ptx::copy16_async(to + i + offset, from + i + offset);
  }
}
__forceinline__ void copy_input(const GroupedLinearArgs& args, const Work& work, u32 shared,
                                const Cursor& at) {
  if (static_cast<int>(threadIdx.x) >= work.rows * 16) return;
  const int group = at.strip * FP8_TILE / args.group_rows;
  const bf16* from = args.x + static_cast<i64>(work.token) * args.x_stride + group * COLS +
                     (work.k_begin + at.k) * FP8_TILE;
  const u32 to = shared + INPUTS + at.stage * 2 * HALF_BYTES;
  for (int i = threadIdx.x; i < work.rows * 16; i += THREADS) {
    const int token = i / 16, chunk = i % 16;
    ptx::copy16_async(
        to + chunk / 8 * HALF_BYTES + token * GROUPED_LINE + ((chunk % 8 ^ (token % 8)) * 16),
        from + static_cast<i64>(token) * args.x_stride + chunk * 8);
  }
}

// Whether a thread of this warp brings weights or input, where weights come in bulk.
__forceinline__ bool warp_copies(const Work& work) {
  return static_cast<int>(threadIdx.x / 32 * 32) < max(work.rows * 16, 32);
}

// sums += one tile: this warp's 16 weight lines x TOKENS, its group's columns.
// @param warp   of the group
__forceinline__ void multiply_tile(float (&sums)[TOKEN_BLOCKS][4], u32 shared, int stage,
                                   float weight_scale, int group, int warp, int lane) {
  constexpr int CHUNKS = FP8_TILE / 16 / K_GROUPS;  // of a line, 16 codes each: a k-step
  float part[TOKEN_BLOCKS][4];
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      part[j][e] = 0.0f;
  const u32 a_line = shared + stage * FP8_TILE_BYTES + (warp * 16 + lane % 16) * FP8_TILE;
  const int token = lane / 4, quarter = lane % 4;
  const u32 b_line = shared + INPUTS + stage * 2 * HALF_BYTES + token * GROUPED_LINE;
#pragma unroll
  for (int i = 0; i < CHUNKS; i += 2) {
    const int pair = group * CHUNKS + i;
    u32 a[4];  // chunk `pair` of lines 0-7 and 8-15, then the next chunk
    ptx::load_matrices(a, a_line + (((pair + lane / 16) ^ (lane % 8)) * 16));
#pragma unroll
    for (int of = 0; of < 2; ++of) {
      const int chunk = pair + of;
      const u32 upper_low = fp8::low_to_bf16(a[of * 2]), upper_high = fp8::high_to_bf16(a[of * 2]);
      const u32 lower_low = fp8::low_to_bf16(a[of * 2 + 1]);
      const u32 lower_high = fp8::high_to_bf16(a[of * 2 + 1]);
      // Columns 16 * chunk + 4 * quarter and the three after them: 8 bytes of the input.
      const u32 from = b_line + chunk / 4 * HALF_BYTES + quarter % 2 * 8 +
                       (((chunk % 4 * 2 + quarter / 2) ^ token) * 16);
#pragma unroll
      for (int j = 0; j < TOKEN_BLOCKS; ++j) {
        const float2 four = ptx::load_shared(from + j * 8 * GROUPED_LINE);
        mma::bf16(part[j], upper_low, lower_low, upper_high, lower_high, __float_as_uint(four.x),
                  __float_as_uint(four.y));
      }
    }
  }
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[j][e] = fmaf(part[j][e], weight_scale, sums[j][e]);
}

// Stores a warp's fragments (16 weight lines x 8 tokens each) as bf16; called by whole warps.
// @param token  the first fragment's first token; the next fragment's is 8 * stride further on
template <int COUNT>
__forceinline__ void store_fragments(const GroupedLinearArgs& args, const float (&sums)[COUNT][4],
                                     int token, int stride, int end, int row, int lane) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    // Lines are permuted so that a lane's four after the transposition are neighbouring rows.
    const u32 low = ptx::transpose_matrix(pack_bf16(sums[i][0], sums[i][1]));
    const u32 high = ptx::transpose_matrix(pack_bf16(sums[i][2], sums[i][3]));
    const int at = token + i * 8 * stride + lane / 4;
    if (at < end)
      *reinterpret_cast<uint2*>(args.out + static_cast<i64>(at) * args.out_stride + row +
                                lane % 4 * 4) = make_uint2(low, high);
  }
}

// The second group's sums to the first, through shared memory.
// @param warp  of the group
__forceinline__ void join_groups(float (&sums)[TOKEN_BLOCKS][4], u32 shared, int group, int warp,
                                 int lane) {
  const u32 place = shared + SUMS + (warp * 32 + lane) * 16;
  if (group == 1) {
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
      ptx::store_shared(place + j * (GROUP_THREADS * 16),
                        make_uint4(__float_as_uint(sums[j][0]), __float_as_uint(sums[j][1]),
                                   __float_as_uint(sums[j][2]), __float_as_uint(sums[j][3])));
  }
  __syncthreads();
  if (group == 0) {
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j) {
      const uint4 other = ptx::load_shared_words(place + j * (GROUP_THREADS * 16));
      sums[j][0] += __uint_as_float(other.x), sums[j][1] += __uint_as_float(other.y);
      sums[j][2] += __uint_as_float(other.z), sums[j][3] += __uint_as_float(other.w);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    grouped_linear(const __grid_constant__ GroupedLinearArgs args) {
  const u32 shared = ptx::shared_address(ptx::dynamic_shared_memory());
  const int group = static_cast<int>(threadIdx.x) / GROUP_THREADS;
  const int warp = threadIdx.x % GROUP_THREADS / 32, lane = threadIdx.x % 32;
  const Work work(args.tokens, args.rows / FP8_TILE);
  if constexpr (BULK_COPY) {
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (int stage = 0; stage < STAGES; ++stage)
        barrier::init(shared + FULL + stage * 8, 1);
      barrier::publish_init();
    }
    __syncthreads();
  }

  // STAGES - 1 tiles are in flight, one group of copies each; an empty group past the end keeps
  // the count. The first weights do not wait for the predecessor: they depend on nothing. A warp
  // that has no part in the copies does not follow them: what a warp does beside its products is
  // what this kernel's time at few tokens is made of.
  const bool copies = !BULK_COPY || warp_copies(work);
  Cursor ahead(work), at(work);
  u32 parity = 0;  // of the ring's round at `at`
  if (copies) {
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
      if (ahead.past_end(work)) break;
      copy_weights(args, work, shared, ahead);
      ahead.advance(work);
    }
  }
  linear::TileScaleBytes<Work::MOST_TILES> upcoming;
  const auto ask_for_scales = [&](int strip) {
    const i64 of = min(strip, work.strips - 1);
    upcoming.load(args.scale + of * K_TILES + work.k_begin, work.tiles, lane);
  };
  ask_for_scales(work.first_strip);
  release_successor();
  wait_for_predecessor();
  Cursor input(work);
#pragma unroll 1
  for (int i = 0; i < STAGES - 1; ++i) {
    if (copies && !input.past_end(work)) {
      copy_input(args, work, shared, input);
      input.advance(work);
    }
    ptx::commit_copies();  // the first of these groups holds all the weights above
  }

  for (int index = work.first_strip; index < work.strips; index += work.step) {
    linear::TileScales<Work::MOST_TILES> scales;
    scales.take(upcoming);
    ask_for_scales(index + work.step);
    float sums[TOKEN_BLOCKS][4];
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[j][e] = 0.0f;
#pragma unroll 1
    for (int tile = 0; tile < work.tiles; ++tile) {
      ptx::wait_copies<STAGES - 2>();
      if (BULK_COPY) barrier::wait(shared + FULL + at.stage * 8, parity);
      __syncthreads();  // this tile has landed for all; the tile before it is free
      if (copies && !ahead.past_end(work)) {
        copy_weights(args, work, shared, ahead);
        copy_input(args, work, shared, ahead);
        ahead.advance(work);
      }
      ptx::commit_copies();
      multiply_tile(sums, shared, at.stage, scales.at(at.k), group, warp, lane);
      at.advance(work);
      if (at.stage == 0) parity ^= 1;
    }
    if constexpr (K_GROUPS > 1) {
      join_groups(sums, shared, group, warp, lane);
      if (group > 0) continue;
    }
    const auto store = [&](int block, const auto& owned, int stride) {
      store_fragments(args, owned, work.token + block * 8, stride, work.token + work.rows,
                      index * FP8_TILE + warp * 16, lane);
    };
    if constexpr (SPLIT_K == 1)
      store(0, sums, 1);
    else
      split_k::reduce<SPLIT_K, 1>(sums, args.workspace, index * gridDim.y + blockIdx.y,
                                  (work.rows + 7) / 8, work.split, warp, lane, store);
  }
}

}  // namespace ingot::kernels
