// The shared expert and the router of few tokens in one launch: what fp8_linear of gate and up,
// swiglu_quant, fp8_linear of down and router_topk make of them, with the same points of rounding.
// Source: model specification section 3.11.
// Launch contract (host twin: launch_shape in shared_expert_few.space.hpp)
//   grid (shared_expert_few_blocks(HIDDEN) + 1), all resident at once   block (256)   cluster none
//   smem shared_expert_few_sizes(...).bytes, dynamic
//   arch sm_90 and later   programmatic dependent launch: yes
//
// All weights lie in the card's shared memory at once and are asked for before the launch's turn:
// they depend on nothing, and the launch before (a hyper-connection) needs little of the memory.
// So that a block starts beside it, it has few threads and few registers.
//
// A block has 8 or 16 lines of gate, the same of up, and 32 of down, each with all its columns, so
// that no sum crosses blocks; its warps share the columns and join their sums in a fixed order. The
// blocks meet once: each leaves its channels' activations, bf16, in L2, where every word is its own
// flag (common/split_k.cuh), and reads those of all others, which it quantises for itself. Each has
// some of the router's rows, too, and multiplies them while activations are on their way. The last
// block has no weights: it chooses the experts, and when all have read the activations it puts the
// workspace back as it was.
//
// Codes become f16, which holds them exactly; tokens are the mma's columns, and parts of them are
// repeated where they are fewer than eight. Products are exact, sums fp32 over 128 columns, then
// scaled and added, in one order whatever the batch. NaN or infinity in a token stays in that
// token's output.
#include "common/barrier.cuh"
#include "common/bf16.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "common/router_choice.cuh"
#include "common/split_k.cuh"
#include "common/swiglu.cuh"
#include "shared_expert_few.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "shared_expert_few.params.def"
#undef PARAM
#endif

namespace ingot::kernels {

static_assert(TOKENS == 1 || TOKENS == 2 || TOKENS == 4 || TOKENS == 8 || TOKENS == 16,
              "TOKENS is a part of the mma's columns, or whole ones");
static_assert(HIDDEN % FP8_TILE == 0 && INTER % FP8_TILE == 0, "weights are whole tiles");
static_assert(INTER <= HIDDEN, "activations lie where the input was");

constexpr int WARPS = SHARED_FEW_WARPS, THREADS = 32 * WARPS;
constexpr int BLOCKS = shared_expert_few_blocks(HIDDEN);
constexpr int LINES = shared_expert_few_lines(HIDDEN, INTER);
constexpr int CHANNEL_BLOCKS = INTER / LINES;  // blocks that have channels
constexpr int EXPERT_ROWS = EXPERTS / BLOCKS;
constexpr int UP_TILES = HIDDEN / FP8_TILE, DOWN_TILES = INTER / FP8_TILE;  // along K
constexpr int UP_PIECES = 2 * LINES / SHARED_FEW_PIECE;                     // of a tile
constexpr int DOWN_PIECES = SHARED_FEW_ROWS / SHARED_FEW_PIECE;
constexpr int PIECE_BYTES = SHARED_FEW_PIECE * FP8_TILE;
constexpr int TOKEN_BLOCKS = (TOKENS + 7) / 8;
constexpr int TOKEN_BYTES = TOKENS * FP8_TILE;  // of the input, in one tile
constexpr SharedExpertFewSizes SIZES = shared_expert_few_sizes(HIDDEN, INTER, EXPERTS, TOKENS);
constexpr int SCALE_ROWS = SIZES.scale_rows;
static_assert(CHANNEL_BLOCKS <= BLOCKS, "each block has some channels, or none");
static_assert(EXPERTS % BLOCKS == 0 && EXPERT_ROWS <= 2 && EXPERT_ROWS * TOKENS <= 32,
              "rows of an mma are parts of two experts, a lane gets each of a block's logits");
static_assert(SHARED_FEW_ROWS * TOKENS * 4 <= SIZES.up_tile, "sums lie where weights were");
static_assert(DOWN_TILES <= UP_TILES, "each warp that has sums has a place for them");
static_assert(SIZES.barriers % 8 == 0 && SIZES.input % 16 == 0, "copies and barriers are aligned");
static_assert(TOKENS * EXPERTS * 4 <= SIZES.bytes, "the choosing block keeps scores");

template <int PIECES>
using Sums = float[PIECES][TOKEN_BLOCKS][4];

template <int PIECES>
__forceinline__ void clear(Sums<PIECES>& sums) {
#pragma unroll
  for (int p = 0; p < PIECES; ++p)
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        sums[p][j][e] = 0.0f;
}

// K tiles of a warp: every eighth.
__forceinline__ int tiles_of(int warp, int tiles) {
  return (tiles - warp + WARPS - 1) / WARPS;
}

// Where this block's lines lie: byte offset of those in the first tile of their strip, and the
// strip's first scale.
template <int COUNT, int K_TILES>
struct Lines {
  int strip, line;
  __forceinline__ explicit Lines(int block)
      : strip(block * COUNT / FP8_TILE), line(block * COUNT % FP8_TILE) {}
  __forceinline__ const fp8_e4m3* at(const fp8_e4m3* weight, int tile) const {
    return weight + static_cast<i64>(strip * K_TILES + tile) * FP8_TILE_BYTES + line * FP8_TILE;
  }
  __forceinline__ const ue8m0* scale(const ue8m0* scale, int tile) const {
    return scale + strip * K_TILES + tile;
  }
};
using UpLines = Lines<LINES, UP_TILES>;
using DownLines = Lines<SHARED_FEW_ROWS, DOWN_TILES>;

// Asks for this warp's weights, gate and up first: one lane, AHEAD tiles at a time. What all warps
// have on their way then (32 KB) is about what memory takes up; with more it comes no sooner, and
// what the launch before still reads waits behind it: measured on an H200, a layer takes 32.2 us
// with all tiles at once, 31.5 with three, 30.4 with two, 29.2 with one.
constexpr int AHEAD = 1;
__forceinline__ void start_weights(const SharedExpertFewArgs& args, u32 shared, int block, int warp,
                                   int lane) {
  if (lane == 0) {
    const UpLines up(block);
    const DownLines down(block);
    const u64 policy = barrier::evict_first_policy();
    const u32 full = shared + SIZES.barriers;
    const int up_tiles = tiles_of(warp, UP_TILES), down_tiles = tiles_of(warp, DOWN_TILES);
    for (int i = 0; i < up_tiles; ++i)
      barrier::init(full + (warp + i * WARPS) * 8, 1);
    for (int i = 0; i < down_tiles; ++i)
      barrier::init(full + (UP_TILES + warp + i * WARPS) * 8, 1);
    barrier::publish_init();
    const auto barrier_of = [&](int i) {
      return full +
             (i < up_tiles ? warp + i * WARPS : UP_TILES + warp + (i - up_tiles) * WARPS) * 8;
    };
    const int first = block < CHANNEL_BLOCKS ? 0 : up_tiles;
#pragma unroll 1
    for (int i = first; i < up_tiles + down_tiles; ++i) {
      if (i - first >= AHEAD) barrier::wait(barrier_of(i - AHEAD), 0);
      const u32 arrives = barrier_of(i);
      if (i < up_tiles) {
        const int tile = warp + i * WARPS;
        const u32 to = shared + tile * SIZES.up_tile;
        constexpr u32 HALF = SIZES.up_tile / 2;
        barrier::arrive_expect(arrives, 2 * HALF);
        barrier::copy_bulk(to, up.at(args.gate.weight, tile), HALF, arrives, policy);
        barrier::copy_bulk(to + HALF, up.at(args.up.weight, tile), HALF, arrives, policy);
      } else {
        const int tile = warp + (i - up_tiles) * WARPS;
        barrier::arrive_expect(arrives, SIZES.down_tile);
        barrier::copy_bulk(shared + SIZES.down + tile * SIZES.down_tile,
                           down.at(args.down.weight, tile), SIZES.down_tile, arrives, policy);
      }
    }
  }
  __syncwarp();
}

// Asks for the quantised input.
__forceinline__ void start_input(const SharedExpertFewArgs& args, u32 shared) {
  const int tokens = args.router.tokens;
  for (int i = static_cast<int>(threadIdx.x); i < UP_TILES * TOKENS * 8; i += THREADS) {
    const int line = i / 8, tile = line / TOKENS, token = line % TOKENS;
    if (token < tokens)
      ptx::copy16_async(
          shared + SIZES.input + i * 16,
          args.xq + (static_cast<i64>(tile) * args.x_rows + token) * FP8_TILE + i % 8 * 16);
  }
  for (int i = static_cast<int>(threadIdx.x); i < UP_TILES * (SCALE_ROWS / 4); i += THREADS) {
    const int tile = i / (SCALE_ROWS / 4), row = i % (SCALE_ROWS / 4) * 4;
    if (row < args.x_rows)
      ptx::copy16_async(shared + SIZES.input_scale + i * 16,
                        args.x_scale + static_cast<i64>(tile) * args.x_rows + row);
  }
  ptx::commit_copies();
}

// ---- the router's rows of this block

// Rows of the mma are the block's experts, each by parts of 32 columns: row g has part g % 4 of
// expert g / 4. Its columns are tokens, likewise: column n has part n % 4 of token n / 4. So all
// lanes have something to load; of the products those of equal parts count.
constexpr int LOGITS = EXPERT_ROWS * TOKENS;  // of a block
constexpr int ROUTER_PARTS = 4;
constexpr int ROUTER_STEPS = (HIDDEN / 32 + ROUTER_PARTS * WARPS - 1) / (ROUTER_PARTS * WARPS);
constexpr int ROUTER_BLOCKS = (TOKENS + 1) / 2;  // of two tokens

struct RouterOperands {
  Bf16Vector<8> gate[ROUTER_STEPS], z[ROUTER_BLOCKS][ROUTER_STEPS];

  // This lane's columns of a step.
  static __forceinline__ int column(int step, int warp, int lane) {
    return ((step * WARPS + warp) * ROUTER_PARTS + lane / 4 % ROUTER_PARTS) * 32 + lane % 4 * 8;
  }
  static __forceinline__ bool exists(int step, int warp, int lane) {
    return HIDDEN % (32 * ROUTER_PARTS * WARPS) == 0 || column(step, warp, lane) < HIDDEN;
  }
  __forceinline__ void load_gate(const bf16* rows, int block, int warp, int lane) {
    const int expert = lane / 16;
#pragma unroll
    for (int i = 0; i < ROUTER_STEPS; ++i) {
      gate[i] = {};
      if (exists(i, warp, lane) && expert < EXPERT_ROWS)
        gate[i] = Bf16Vector<8>::load(
            rows + static_cast<i64>(block * EXPERT_ROWS + expert) * HIDDEN + column(i, warp, lane));
    }
  }
  __forceinline__ void load_tokens(int n, const SharedExpertFewArgs& args, int warp, int lane) {
    const int token = 2 * n + lane / 16;
#pragma unroll
    for (int i = 0; i < ROUTER_STEPS; ++i) {
      z[n][i] = {};
      if (exists(i, warp, lane) && token < args.router.tokens)
        z[n][i] = Bf16Vector<8>::load(args.router.z + static_cast<i64>(token) * HIDDEN +
                                      column(i, warp, lane));
    }
  }
};

// This warp's part of the block's logits, to shared memory: token by token, its experts side by
// side.
__forceinline__ void score_experts(const RouterOperands& operands, float* parts, int warp,
                                   int lane) {
#pragma unroll
  for (int n = 0; n < ROUTER_BLOCKS; ++n) {
    float even[4] = {}, odd[4] = {};
#pragma unroll
    for (int i = 0; i < ROUTER_STEPS; ++i) {
      const u32(&a)[4] = operands.gate[i].pairs;
      const u32(&b)[4] = operands.z[n][i].pairs;
      mma::bf16(even, a[0], 0, a[1], 0, b[0], b[1]);
      mma::bf16(odd, a[2], 0, a[3], 0, b[2], b[3]);
    }
    // The lane has columns 2c and 2c + 1 of row g, that is of one token two neighbouring parts.
    const int part = lane / 4 % ROUTER_PARTS;
    float sum = part % 2 == 0 ? even[0] + odd[0] : even[1] + odd[1];
    if (lane % 2 != part / 2) sum = 0.0f;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 4);
    sum += __shfl_xor_sync(0xffffffffu, sum, 8);
    const int token = 2 * n + lane % 4 / 2, expert = lane / 16;
    if (lane % 2 == 0 && part == 0 && token < TOKENS && expert < EXPERT_ROWS)
      parts[warp * LOGITS + token * EXPERT_ROWS + expert] = sum;
  }
}

// One warp: the block's logits, to the workspace.
__forceinline__ void publish_logits(const SharedExpertFewArgs& args, const float* parts, int block,
                                    int lane) {
  const int token = lane / EXPERT_ROWS;
  if (lane >= LOGITS || token >= args.router.tokens) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w)
    sum += parts[w * LOGITS + lane];
  float* const logits =
      reinterpret_cast<float*>(static_cast<u8*>(args.router.workspace) + SHARED_FEW_LOGITS);
  ptx::store_relaxed(logits + token * EXPERTS + block * EXPERT_ROWS + lane % EXPERT_ROWS,
                     __float_as_uint(sum));
}

// ---- products

// What a lane needs of 32 columns: weights' codes of each piece, tokens' codes.
template <int PIECES>
struct Operands {
  u32 codes[PIECES][4], x[TOKEN_BLOCKS][2];

  // @param line  shared address of the tile's line lane % 16, its chunk (lane / 16) ^ (lane % 8)
  // @param word  shared address of the lane's four codes of its token in the tile, in chunk
  //              token % 8
  __forceinline__ void load(u32 line, u32 word, int pair) {
    // Chunks are swizzled by exclusive or, and so is the way from one pair of them to another.
#pragma unroll
    for (int p = 0; p < PIECES; ++p)
      ptx::load_matrices(codes[p], (line ^ pair * 32) + p * PIECE_BYTES);
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        x[j][half] = __float_as_uint(
            ptx::load_shared_float((word ^ (pair * 32 + half * 16)) + j * (8 * FP8_TILE)));
  }
};

template <int PIECES>
__forceinline__ void multiply_pair(Sums<PIECES> (&parts)[PIECES == 1 ? 2 : 1],
                                   const Operands<PIECES>& of) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    auto& part = parts[PIECES == 1 ? half : 0];
    u32 x[TOKEN_BLOCKS][2];
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j) {
      x[j][0] = fp8::to_f16(of.x[j][half]);
      x[j][1] = fp8::high_to_f16(of.x[j][half]);
    }
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      const u32 a = of.codes[p][2 * half], b = of.codes[p][2 * half + 1];
      const u32 low[2] = {fp8::to_f16(a), fp8::to_f16(b)};
      const u32 high[2] = {fp8::high_to_f16(a), fp8::high_to_f16(b)};
#pragma unroll
      for (int j = 0; j < TOKEN_BLOCKS; ++j)
        mma::f16(part[p][j], low[0], low[1], high[0], high[1], x[j][0], x[j][1]);
    }
  }
}

// sums += the warp's tiles, of pieces of 16 lines x TOKENS. What 32 columns need is loaded while
// those before are multiplied: two warps of a scheduler hide no latency for each other.
// @param weights  shared address of the warp's first tile; the next is WARPS further on, as all are
// @param arrived  shared address of its barrier
// @param input    shared address of the tokens of its first tile
// @param scales   shared address of their scales
// @param scale_of(tile, piece, lower)  the weights' scale of a piece's lines 0-7 or 8-15; called by
//                 whole warps
template <int PIECES, class ScaleOf>
__forceinline__ void multiply_tiles(Sums<PIECES>& sums, int tiles, u32 weights, u32 arrived,
                                    u32 input, u32 scales, int lane, ScaleOf scale_of) {
  const int token = lane / 4 % TOKENS;  // tokens that are not there repeat others
  u32 line = weights + lane % 16 * FP8_TILE + ((lane / 16) ^ (lane % 8)) * 16;
  u32 word = input + token * FP8_TILE + token % 8 * 16 + lane % 4 * 4;
  if constexpr (TOKENS > 1) scales += lane % 4 * 2 % TOKENS * 4;
  Operands<PIECES> now, next;
  if (tiles > 0) {
    barrier::wait(arrived, 0);
    now.load(line, word, 0);
  }
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    constexpr int CHAINS = PIECES == 1 ? 2 : 1;
    Sums<PIECES> parts[CHAINS];
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain)
      clear<PIECES>(parts[chain]);
#pragma unroll
    for (int pair = 0; pair < FP8_TILE / 32; ++pair) {
      if (pair + 1 < FP8_TILE / 32) {
        next.load(line, word, pair + 1);
      } else if (i + 1 < tiles) {
        arrived += WARPS * 8;
        barrier::wait(arrived, 0);
        line += WARPS * PIECES * PIECE_BYTES;
        word += WARPS * TOKEN_BYTES;
        next.load(line, word, 0);
      }
      multiply_pair<PIECES>(parts, now);
      now = next;
    }
    float upper[PIECES], lower[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      upper[p] = scale_of(i, p, false);
      lower[p] = scale_of(i, p, true);
    }
#pragma unroll
    for (int j = 0; j < TOKEN_BLOCKS; ++j) {
      float2 scale;  // of tokens 2c and 2c + 1
      if constexpr (TOKENS == 1)
        scale.x = scale.y = ptx::load_shared_float(scales);
      else
        scale = ptx::load_shared(scales + j * 32);
#pragma unroll
      for (int p = 0; p < PIECES; ++p)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float part =
              CHAINS == 1 ? parts[0][p][j][e] : parts[0][p][j][e] + parts[CHAINS - 1][p][j][e];
          sums[p][j][e] = fmaf(part, (e % 2 == 0 ? scale.x : scale.y) * (e < 2 ? upper : lower)[p],
                               sums[p][j][e]);
        }
    }
    scales += WARPS * SCALE_ROWS * 4;
  }
}

// A warp's sums, to where its first tile of gate and up was: [TOKENS][32 lines] of all pieces.
template <int PIECES>
__forceinline__ void leave_sums(const Sums<PIECES>& sums, float* to, int lane) {
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = j * 8 + lane % 4 * 2 + e % 2;
      if (token < TOKENS) {
#pragma unroll
        for (int p = 0; p < PIECES; ++p)
          to[token * SHARED_FEW_ROWS + p * SHARED_FEW_PIECE + lane / 4 + e / 2 * 8] = sums[p][j][e];
      }
    }
}
// A line's sum over the warps that had tiles.
template <int K_TILES>
__forceinline__ float join_sums(const u8* memory, int token, int line) {
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < (K_TILES < WARPS ? K_TILES : WARPS); ++w)
    sum +=
        reinterpret_cast<const float*>(memory + w * SIZES.up_tile)[token * SHARED_FEW_ROWS + line];
  return sum;
}

__forceinline__ void multiply_up(u32 shared, u8* memory, u32 gate_scale, u32 up_scale, int warp,
                                 int lane) {
  Sums<UP_PIECES> sums;
  clear<UP_PIECES>(sums);
  const float gate = fp8::ue8m0_value(gate_scale), up = fp8::ue8m0_value(up_scale);
  multiply_tiles<UP_PIECES>(
      sums, tiles_of(warp, UP_TILES), shared + warp * SIZES.up_tile,
      shared + SIZES.barriers + warp * 8, shared + SIZES.input + warp * TOKEN_BYTES,
      shared + SIZES.input_scale + warp * (SCALE_ROWS * 4), lane, [&](int i, int p, bool lower) {
        // Two pieces are gate and up, one has eight lines of each.
        const bool of_up = UP_PIECES == 2 ? p == 1 : lower;
        return __shfl_sync(0xffffffffu, of_up ? up : gate, i);
      });
  __syncwarp();  // sums go where all lanes have read
  if (warp < UP_TILES)
    leave_sums<UP_PIECES>(sums, reinterpret_cast<float*>(memory + warp * SIZES.up_tile), lane);
}

// Rounded gate and up of this block's channels to their activation, to the workspace.
__forceinline__ void publish_activations(const SharedExpertFewArgs& args, const u8* memory,
                                         bf16* activations, int block) {
  constexpr int COUNT = LINES * TOKENS;
  for (int i = static_cast<int>(threadIdx.x); i < (COUNT + 31) / 32 * 32; i += THREADS) {
    const int item = min(i, COUNT - 1), token = item / LINES, line = item % LINES;
    const float gate = to_float(to_bf16(join_sums<UP_TILES>(memory, token, line)));
    const float up = to_float(to_bf16(join_sums<UP_TILES>(memory, token, LINES + line)));
    const float h = swiglu(gate, up, args.limit);
    const float next = __shfl_xor_sync(0xffffffffu, h, 1);
    if (i < COUNT && line % 2 == 0 && token < args.router.tokens) {
      // Two neighbouring lines are two neighbouring rows.
      const int channel = block * LINES / 16 * 16 + fp8_tile_row(block * LINES % 16 + line);
      ptx::store_relaxed(activations + token * INTER + channel, pack_bf16(h, next));
    }
  }
}

// All channels' activations, quantised, to where the input was; half a warp takes 128 channels of
// a token.
__forceinline__ void gather_activations(int tokens, u8* memory, const bf16* activations) {
  constexpr int ITEMS = TOKENS * DOWN_TILES, HALF_WARPS = THREADS / 16;
  constexpr int BATCH = (ITEMS + HALF_WARPS - 1) / HALF_WARPS;
  const int part = static_cast<int>(threadIdx.x) % 16;
  uint4 words[BATCH];
  int token[BATCH], tile[BATCH];
  bool exists[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const int item = i * HALF_WARPS + static_cast<int>(threadIdx.x) / 16;
    token[i] = item / DOWN_TILES;
    tile[i] = item % DOWN_TILES;
    exists[i] = token[i] < tokens;
    words[i] =
        make_uint4(split_k::kNothing, split_k::kNothing, split_k::kNothing, split_k::kNothing);
  }
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
      if (exists[i] && split_k::incomplete(words[i])) {
        words[i] =
            ptx::load_relaxed(activations + token[i] * INTER + tile[i] * FP8_TILE + part * 8);
        missing = true;
      }
  } while (missing);
  __syncwarp();
  float* const scales = reinterpret_cast<float*>(memory + SIZES.input_scale);
  u32 largest[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; ++i)
    largest[i] = fp8::largest_magnitude_bits(words[i]);
#pragma unroll
  for (int lanes = 8; lanes > 0; lanes /= 2)
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
      largest[i] = max(largest[i], __shfl_xor_sync(0xffffffffu, largest[i], lanes));
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    // As fp8::quantize_group, of several groups side by side.
    const int exponent = fp8::scale_exponent(__uint_as_float(largest[i]));
    const uint2 codes = fp8::quantize(words[i], fp8::inverse_power_of_two(exponent));
    if (exists[i]) {
      *reinterpret_cast<uint2*>(memory + SIZES.input + tile[i] * TOKEN_BYTES + token[i] * FP8_TILE +
                                (part / 2 ^ token[i] % 8) * 16 + part % 2 * 8) = codes;
      if (part == 0)
        scales[tile[i] * SCALE_ROWS + token[i]] = largest[i] > fp8::kInfinityBits
                                                      ? __uint_as_float(0x7fffffffu)
                                                      : fp8::power_of_two(exponent);
    }
  }
}

__forceinline__ void multiply_down(u32 shared, u8* memory, u32 scale, int warp, int lane) {
  Sums<DOWN_PIECES> sums;
  clear<DOWN_PIECES>(sums);
  const float of_lane = fp8::ue8m0_value(scale);
  multiply_tiles<DOWN_PIECES>(
      sums, tiles_of(warp, DOWN_TILES), shared + SIZES.down + warp * SIZES.down_tile,
      shared + SIZES.barriers + (UP_TILES + warp) * 8, shared + SIZES.input + warp * TOKEN_BYTES,
      shared + SIZES.input_scale + warp * (SCALE_ROWS * 4), lane,
      [&](int i, int, bool) { return __shfl_sync(0xffffffffu, of_lane, i); });
  if (warp < DOWN_TILES)
    leave_sums<DOWN_PIECES>(sums, reinterpret_cast<float*>(memory + warp * SIZES.up_tile), lane);
}

__forceinline__ void store_output(const SharedExpertFewArgs& args, const u8* memory, int block,
                                  int warp, int lane) {
  const DownLines down(block);
  for (int token = warp; token < min(TOKENS, args.router.tokens); token += WARPS) {
    const float sum = join_sums<DOWN_TILES>(memory, token, lane);
    const float next = __shfl_xor_sync(0xffffffffu, sum, 1);
    if (lane % 2 == 0)
      *reinterpret_cast<u32*>(args.out + static_cast<i64>(token) * HIDDEN + down.strip * FP8_TILE +
                              fp8_tile_row(down.line + lane)) = pack_bf16(sum, next);
  }
}

// The last block: each thread takes experts' logits and scores them, then each warp a token.
__forceinline__ void choose_experts(const SharedExpertFewArgs& args, u8* memory, int warp,
                                    int lane) {
  constexpr int LANE_EXPERTS = router::lane_experts<EXPERTS>();
  float bias[LANE_EXPERTS];
#pragma unroll
  for (int n = 0; n < LANE_EXPERTS; ++n)
    bias[n] = !HASH && lane * LANE_EXPERTS + n < EXPERTS
                  ? ptx::load_float(args.router.bias + lane * LANE_EXPERTS + n)
                  : 0.0f;
  release_successor();
  wait_for_predecessor();
  u8* const workspace = static_cast<u8*>(args.router.workspace);
  float* const logits = reinterpret_cast<float*>(workspace + SHARED_FEW_LOGITS);
  float* const scores = reinterpret_cast<float*>(memory);
  const int tokens = args.router.tokens, mine = warp < tokens ? warp : 0;
  int listed = HASH ? router::listed_expert<EXPERTS, TOP>(args.router, mine, lane) : 0;
#pragma unroll 1
  for (int i = threadIdx.x; i < tokens * EXPERTS; i += THREADS) {
    u32 word;
    do {
      word = ptx::load_relaxed_word(logits + i);
    } while (word == split_k::kNothing);
    ptx::store_relaxed(logits + i, split_k::kNothing);
    scores[i] = router::score_of_any(__uint_as_float(word));
  }
  __syncthreads();
#pragma unroll 1
  for (int token = warp; token < tokens; token += WARPS) {
    if (HASH && token != mine)
      listed = router::listed_expert<EXPERTS, TOP>(args.router, token, lane);
    const float* const of_token = scores + token * EXPERTS;
    int chosen = listed;
    if constexpr (!HASH) {
      u32 keys[LANE_EXPERTS];
#pragma unroll
      for (int n = 0; n < LANE_EXPERTS; ++n) {
        const int id = lane * LANE_EXPERTS + n;
        keys[n] = id < EXPERTS ? router::order_of(of_token[id] + bias[n]) : 0;
      }
      chosen =
          router::pick<EXPERTS, TOP>(keys, lane, [&](int n) { return lane * LANE_EXPERTS + n; });
    }
    router::store_choice<TOP>(args.router, of_token, chosen, token, lane);
  }
  // Each block has added one to kNothing when it had read the activations.
  if (threadIdx.x == THREADS - 1) {
    while (ptx::load_relaxed_word(workspace) != BLOCKS + split_k::kNothing) {
    }
    ptx::store_relaxed(workspace, split_k::kNothing);
  }
  __syncthreads();
  u8* const activations = workspace + shared_expert_few_activations(tokens, EXPERTS);
  for (int i = threadIdx.x; i < tokens * (INTER / 8); i += THREADS)
    ptx::store_relaxed(activations + i * 16, make_uint4(split_k::kNothing, split_k::kNothing,
                                                        split_k::kNothing, split_k::kNothing));
}

// Of few tokens registers for four such blocks, so that one starts beside the launch before.
extern "C" __global__ void __launch_bounds__(THREADS, TOKENS <= 4 ? 4 : 2)
    shared_expert_few(const __grid_constant__ SharedExpertFewArgs args) {
  u8* const memory = ptx::dynamic_shared_memory();
  const u32 shared = ptx::shared_address(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, block = blockIdx.x;
  if (block == BLOCKS) {
    choose_experts(args, memory, warp, lane);
    return;
  }
  const bool has_channels = block < CHANNEL_BLOCKS;
  start_weights(args, shared, block, warp, lane);
  u32 gate_scale = 0, up_scale = 0, down_scale = 0;  // of a tile per lane
  if (has_channels && lane < tiles_of(warp, UP_TILES)) {
    const UpLines up(block);
    gate_scale = ptx::load_byte(up.scale(args.gate.scale, warp + lane * WARPS));
    up_scale = ptx::load_byte(up.scale(args.up.scale, warp + lane * WARPS));
  }
  if (lane < tiles_of(warp, DOWN_TILES))
    down_scale = ptx::load_byte(DownLines(block).scale(args.down.scale, warp + lane * WARPS));
  if (threadIdx.x == 0)
    barrier::prefetch_bulk(args.router.gate + static_cast<i64>(block * EXPERT_ROWS) * HIDDEN,
                           EXPERT_ROWS * HIDDEN * 2);
  release_successor();
  wait_for_predecessor();

  float* const logits = reinterpret_cast<float*>(memory + SIZES.logits);
  bf16* const activations =
      reinterpret_cast<bf16*>(static_cast<u8*>(args.router.workspace) +
                              shared_expert_few_activations(args.router.tokens, EXPERTS));
  start_input(args, shared);
  ptx::wait_copies<0>();
  __syncthreads();
  if (has_channels) multiply_up(shared, memory, gate_scale, up_scale, warp, lane);
  RouterOperands router;
  router.load_gate(args.router.gate, block, warp, lane);
  router.load_tokens(0, args, warp, lane);
  __syncthreads();
  if (has_channels) publish_activations(args, memory, activations, block);
#pragma unroll
  for (int n = 1; n < ROUTER_BLOCKS; ++n)
    router.load_tokens(n, args, warp, lane);
  score_experts(router, logits, warp, lane);
  __syncthreads();
  if (warp == WARPS - 1) publish_logits(args, logits, block, lane);
  gather_activations(args.router.tokens, memory, activations);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(static_cast<u32*>(args.router.workspace), 1u);
  multiply_down(shared, memory, down_scale, warp, lane);
  __syncthreads();
  store_output(args, memory, block, warp, lane);
}

}  // namespace ingot::kernels
