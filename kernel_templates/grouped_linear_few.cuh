// y_g = x_g * W_g^T for each group of columns, as grouped_linear, for few tokens: a stream of
// weights that nothing may hold up. Launch contract (host twin: launch_shape in
// grouped_linear_few.space.hpp)
//   grid (blocks of ROWS weight rows, token tiles)   block (32 * WARPS)   cluster none
//   smem grouped_linear_few_smem_bytes(...), dynamic
//   arch sm_90 and later   programmatic dependent launch: yes
//
// A block has ROWS weight rows and all K columns of their group, so nothing crosses blocks. Each
// warp has 16 of the rows and every so many tiles of 128 columns, and a ring of its own: it copies
// its 16 lines of a tile (2 KB), waits for them and asks for the next without a word to the others.
// Warps meet twice: when the input is there, and when their sums are joined, in a fixed order. The
// rings are filled before the launch's turn comes, as far as they reach: weights depend on nothing.
//
// Codes become f16, which holds them exactly, by one instruction for two. The input is bf16, whose
// 8 bits f16 holds, but not the range: each token's 128 columns are multiplied by the power of two
// that brings the largest to 2^15, so that what is within 2^-29 of it is exact and what is smaller
// off by 2^-40 of it at most: less than fp32 sums lose. Products are exact, sums fp32 over 128
// columns, then scaled and added. For one variant they have one order, whatever the batch. NaN or
// infinity in a token stays in that token's output.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "grouped_linear_few.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "grouped_linear_few.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 1 || TOKENS == 2 || TOKENS == 4 || TOKENS == 8 || TOKENS == 16,
              "TOKENS is a part of the mma's columns, or whole ones");
static_assert(COLS % FP8_TILE == 0, "K is whole tiles");
static_assert(FP8_TILE % ROWS == 0 && ROWS % GROUPED_FEW_LINES == 0,
              "a block is a part of a strip");
static_assert(WARPS % (ROWS / GROUPED_FEW_LINES) == 0, "each warp has 16 of the rows");
static_assert(STAGES >= 2 && STAGES <= 32, "a lane sets up a stage");
static_assert((TOKENS + 7) / 8 * 512 <= STAGES * GROUPED_FEW_PIECE, "sums lie where the ring was");

constexpr int THREADS = WARPS * 32;
constexpr int ROW_BLOCKS = ROWS / GROUPED_FEW_LINES;  // warps side by side
constexpr int K_GROUPS = WARPS / ROW_BLOCKS;          // that share the tiles
constexpr int K_TILES = COLS / FP8_TILE;
constexpr int MOST_TILES = (K_TILES + K_GROUPS - 1) / K_GROUPS;  // of a warp
constexpr int TOKEN_BLOCKS = (TOKENS + 7) / 8;
constexpr int INPUT_ROW = 2 * COLS;
static_assert(MOST_TILES <= 32, "a lane has the scale of a tile");

// Offsets in shared memory.
constexpr int FULL = WARPS * STAGES * GROUPED_FEW_PIECE;
constexpr int INPUT = FULL + WARPS * STAGES * 8;
constexpr int INVERSES = INPUT + TOKENS * INPUT_ROW;
static_assert(INPUT % 16 == 0, "the input is read 16 bytes at a time");
static_assert(INVERSES + TOKENS * K_TILES * 4 ==
                  grouped_linear_few_smem_bytes(COLS, TOKENS, STAGES, WARPS),
              "host and device agree on the shared memory");

using Sums = float[TOKEN_BLOCKS][4];

__forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      sums[j][e] = 0.0f;
}

// A warp's way through its tiles.
struct Pieces {
  const fp8_e4m3* from;  // its lines of its first tile
  u32 ring, full;        // shared addresses
  int count;

  __forceinline__ void copy(int piece, int stage) const {
    const u32 barrier = full + stage * 8;
    barrier::arrive_expect(barrier, GROUPED_FEW_PIECE);
    barrier::copy_bulk(ring + stage * GROUPED_FEW_PIECE,
                       from + static_cast<i64>(piece) * (K_GROUPS * FP8_TILE_BYTES),
                       GROUPED_FEW_PIECE, barrier, barrier::evict_first_policy());
  }
};

// The tokens' columns of the group, as f16 in shared memory, and what undoes each factor. Of 32
// columns a lane of the mma takes 4 of the first half and 4 of the second: they lie together. Odd
// tokens have every two of these 64 bytes exchanged, so that two tokens are read without conflict.
__forceinline__ void bring_input(const bf16* x, i64 x_stride, int rows, u8* memory) {
  const u32 shared = ptx::shared_address(memory);
  float* const inverses = reinterpret_cast<float*>(memory + INVERSES);
  constexpr int BATCH = TOKENS < 8 ? TOKENS : 8;  // loads in flight
  constexpr int STRIDE = THREADS / 16;            // half a warp takes 128 columns of a token
  const int part = threadIdx.x % 16, items = rows * K_TILES;
  for (int base = threadIdx.x / 32 * 2; base < items; base += STRIDE * BATCH) {
    Bf16Vector<8> values[BATCH];
    int row[BATCH], tile[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      // The last item of an odd number is done by both halves of a warp: same bytes, same place.
      const int item = min(base + i * STRIDE + static_cast<int>(threadIdx.x) % 32 / 16, items - 1);
      row[i] = item / K_TILES;
      tile[i] = item - row[i] * K_TILES;
      values[i] = Bf16Vector<8>::load(x + row[i] * x_stride + tile[i] * FP8_TILE + part * 8);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (base + i * STRIDE >= items) continue;
      const u32(&pairs)[4] = values[i].pairs;
      u32 largest = fp8::largest_magnitude_bits(make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
#pragma unroll
      for (int lanes = 8; lanes > 0; lanes /= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
      // 2^15 over the power of two in the largest; a number also where that is tiny or infinite.
      const int exponent = min(142 - static_cast<int>(largest >> 23), 126);
      const float factor = fp8::power_of_two(exponent);
      u32 halves[4];
#pragma unroll
      for (int n = 0; n < 4; ++n)
        halves[n] = pack_f16(low_to_float(pairs[n]) * factor, high_to_float(pairs[n]) * factor);
      const u32 to = shared + INPUT + row[i] * INPUT_ROW + tile[i] * (2 * FP8_TILE) +
                     (part / 4 ^ row[i] % 2) * 64 + part % 2 * 32 + part % 4 / 2 * 8;
      ptx::store_shared(to, make_uint2(halves[0], halves[1]));
      ptx::store_shared(to + 16, make_uint2(halves[2], halves[3]));
      if (part == 0) inverses[tile[i] * TOKENS + row[i]] = fp8::power_of_two(-exponent);
    }
  }
}

// sums += a piece: 16 weight lines x TOKENS, 128 columns. The piece's stage is read when this
// calls `read`.
// @param input    shared address of the lane's token's columns of the tile, its four of each 16
// @param swapped  64 for an odd token, else 0
template <class Read>
__forceinline__ void multiply_piece(Sums& sums, u32 piece, u32 input, u32 swapped, u32 inverses,
                                    float weight_scale, int lane, Read read) {
  u32 codes[FP8_TILE / 32][4];
  const u32 line = piece + lane % 16 * FP8_TILE;
#pragma unroll
  for (int pair = 0; pair < FP8_TILE / 32; ++pair)
    ptx::load_matrices(codes[pair], line + (((pair * 2 + lane / 16) ^ (lane % 8)) * 16));
  read();
  Sums even, odd;
  clear(even);
  clear(odd);
#pragma unroll
  for (int pair = 0; pair < FP8_TILE / 32; ++pair) {
    u32 low[4], high[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      low[i] = fp8::to_f16(codes[pair][i]);
      high[i] = fp8::high_to_f16(codes[pair][i]);
    }
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j) {
      const uint4 x = ptx::load_shared_words((pair % 2 == 0 ? input + swapped : input - swapped) +
                                             j * 8 * INPUT_ROW + pair * 64);
      mma::f16(even[j], low[0], low[1], high[0], high[1], x.x, x.y);
      mma::f16(odd[j], low[2], low[3], high[2], high[3], x.z, x.w);
    }
  }
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    float2 inverse;  // of tokens 2c and 2c + 1
    if constexpr (TOKENS == 1)
      inverse.x = inverse.y = ptx::load_shared_float(inverses);
    else
      inverse = ptx::load_shared(inverses + j * 32);
    const float first = inverse.x * weight_scale * fp8::kF16Factor;
    const float second = inverse.y * weight_scale * fp8::kF16Factor;
    sums[j][0] = fmaf(even[j][0] + odd[j][0], first, sums[j][0]);
    sums[j][1] = fmaf(even[j][1] + odd[j][1], second, sums[j][1]);
    sums[j][2] = fmaf(even[j][2] + odd[j][2], first, sums[j][2]);
    sums[j][3] = fmaf(even[j][3] + odd[j][3], second, sums[j][3]);
  }
}

// The sums of all warps that share rows to the first of them, by way of the others' rings.
__forceinline__ void join_warps(Sums& sums, u32 shared, int group, int warp, int lane) {
  const auto place = [&](int of) { return shared + of * (STAGES * GROUPED_FEW_PIECE) + lane * 16; };
  if (group > 0) {
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
      ptx::store_shared(place(warp) + j * 512,
                        make_uint4(__float_as_uint(sums[j][0]), __float_as_uint(sums[j][1]),
                                   __float_as_uint(sums[j][2]), __float_as_uint(sums[j][3])));
  }
  __syncthreads();
  if (group > 0) return;
#pragma unroll
  for (int of = 1; of < K_GROUPS; ++of)
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j) {
      const uint4 other = ptx::load_shared_words(place(warp + of * ROW_BLOCKS) + j * 512);
      sums[j][0] += __uint_as_float(other.x), sums[j][1] += __uint_as_float(other.y);
      sums[j][2] += __uint_as_float(other.z), sums[j][3] += __uint_as_float(other.w);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    grouped_linear_few(const __grid_constant__ GroupedLinearArgs args) {
  u8* const memory = ptx::dynamic_shared_memory();
  const u32 shared = ptx::shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = warp / ROW_BLOCKS;  // of warps: which tiles
  const int first_row = static_cast<int>(blockIdx.x) * ROWS;
  const int strip = first_row / FP8_TILE;
  const int line = first_row % FP8_TILE + warp % ROW_BLOCKS * GROUPED_FEW_LINES;
  const i64 first_tile = static_cast<i64>(strip) * K_TILES + group;
  const Pieces pieces{args.weight + first_tile * FP8_TILE_BYTES + line * FP8_TILE,
                      shared + warp * (STAGES * GROUPED_FEW_PIECE),
                      shared + FULL + warp * (STAGES * 8),
                      (K_TILES - group + K_GROUPS - 1) / K_GROUPS};
  if (lane < STAGES) {
    barrier::init(pieces.full + lane * 8, 1);
    barrier::publish_init();
    if (lane < pieces.count) pieces.copy(lane, lane);
  }
  const u32 scale =
      lane < pieces.count ? ptx::load_byte(args.scale + first_tile + lane * K_GROUPS) : 0;
  release_successor();
  wait_for_predecessor();

  const int token = static_cast<int>(blockIdx.y) * TOKENS;
  const int rows = min(TOKENS, args.tokens - token);
  bring_input(args.x + static_cast<i64>(token) * args.x_stride +
                  static_cast<i64>(first_row / args.group_rows) * COLS,
              args.x_stride, rows, memory);
  __syncthreads();

  // Tokens that are not there repeat others; what comes of them is not stored.
  const int mine = lane / 4 % TOKENS;
  const u32 input = shared + INPUT + mine * INPUT_ROW + lane % 4 * 16 + group * (2 * FP8_TILE);
  const u32 inverses = shared + INVERSES + lane % 4 * 2 % TOKENS * 4 + group * (TOKENS * 4);
  const float scales = fp8::ue8m0_value(scale);
  Sums sums;
  clear(sums);
  int stage = 0;
  u32 parity = 0;
#pragma unroll 1
  for (int piece = 0; piece < pieces.count; ++piece) {
    barrier::wait(pieces.full + stage * 8, parity);
    const float weight_scale = __shfl_sync(0xffffffffu, scales, piece);
    multiply_piece(sums, pieces.ring + stage * GROUPED_FEW_PIECE,
                   input + piece * (K_GROUPS * 2 * FP8_TILE), mine % 2 * 64,
                   inverses + piece * (K_GROUPS * TOKENS * 4), weight_scale, lane, [&] {
                     __syncwarp();
                     if (lane == 0 && piece + STAGES < pieces.count)
                       pieces.copy(piece + STAGES, stage);
                   });
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  if constexpr (K_GROUPS > 1) {
    join_warps(sums, shared, group, warp, lane);
    if (group > 0) return;
  }

  // Lines are permuted so that a lane's four after the transposition are neighbouring rows.
  const int row = strip * FP8_TILE + line + lane % 4 * 4;
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    const u32 low = ptx::transpose_matrix(pack_bf16(sums[j][0], sums[j][1]));
    const u32 high = ptx::transpose_matrix(pack_bf16(sums[j][2], sums[j][3]));
    const int at = j * 8 + lane / 4;
    if (at < rows)
      *reinterpret_cast<uint2*>(args.out + static_cast<i64>(token + at) * args.out_stride + row) =
          make_uint2(low, high);
  }
}

}  // namespace ingot::kernels
