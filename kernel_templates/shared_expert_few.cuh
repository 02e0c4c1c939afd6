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
// flag (common/split_k.cuh), and reads those of all others, which it quantises for itself. A few of
// the router's rows are each block's, too: dot products in fp32 from registers. The last block has
// no weights: it chooses the experts, and when all have read the activations it puts the workspace
// back as it was.
//
// Everything runs twice: before the launch's turn dry, on whatever the shared memory holds, with
// nothing copied, awaited or stored. That fetches the instructions, some 40 KB that come from L2 as
// slowly as the data and would take as long as the work.
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
static_assert(EXPERTS % BLOCKS == 0 && EXPERT_ROWS * TOKENS <= 32 &&
                  (EXPERT_ROWS & (EXPERT_ROWS - 1)) == 0,
              "a lane gets each of a block's logits");
static_assert(SHARED_FEW_ROWS * TOKENS * 4 <= SIZES.up_warp, "sums lie where weights were");
static_assert(SIZES.barriers % 8 == 0 && SIZES.input % 16 == 0, "copies and barriers are aligned");
static_assert(WARPS * EXPERTS * 4 + TOKENS * TOP * 8 <= SIZES.bytes,
              "the choosing block keeps scores");

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

// Asks for all weights of this warp. Its tile of gate and up: gate's lines, then up's.
__forceinline__ void start_weights(const SharedExpertFewArgs& args, u32 shared, int block, int warp,
                                   int lane) {
  const u32 up_full = shared + SIZES.barriers + warp * 8, down_full = up_full + WARPS * 8;
  const int up_tiles = block < CHANNEL_BLOCKS ? tiles_of(warp, UP_TILES) : 0;
  const int down_tiles = tiles_of(warp, DOWN_TILES);
  constexpr u32 UP_BYTES = LINES * FP8_TILE, DOWN_BYTES = SHARED_FEW_ROWS * FP8_TILE;
  if (lane == 0) {
    barrier::init(up_full, 1);
    barrier::init(down_full, 1);
    barrier::publish_init();
    barrier::arrive_expect(up_full, up_tiles * 2 * UP_BYTES);
    barrier::arrive_expect(down_full, down_tiles * DOWN_BYTES);
  }
  __syncwarp();
  const u64 policy = barrier::evict_first_policy();
  const UpLines up(block);
  const u32 up_to = shared + warp * SIZES.up_warp;
  for (int i = lane; i < 2 * up_tiles; i += 32)
    barrier::copy_bulk(up_to + i * UP_BYTES,
                       up.at(i % 2 == 0 ? args.gate.weight : args.up.weight, warp + i / 2 * WARPS),
                       UP_BYTES, up_full, policy);
  const DownLines down(block);
  const u32 down_to = shared + SIZES.down + warp * SIZES.down_warp;
  for (int i = lane; i < down_tiles; i += 32)
    barrier::copy_bulk(down_to + i * DOWN_BYTES, down.at(args.down.weight, warp + i * WARPS),
                       DOWN_BYTES, down_full, policy);
}

// Asks for the quantised input.
__forceinline__ void start_input(const SharedExpertFewArgs& args, u32 shared, int tokens) {
  for (int i = ptx::thread_here(); i < UP_TILES * TOKENS * 8; i += THREADS) {
    const int line = i / 8, tile = line / TOKENS, token = line % TOKENS;
    if (token < tokens)
      ptx::copy16_async(
          shared + SIZES.input + i * 16,
          args.xq + (static_cast<i64>(tile) * args.x_rows + token) * FP8_TILE + i % 8 * 16);
  }
  for (int i = ptx::thread_here(); i < UP_TILES * (SCALE_ROWS / 4); i += THREADS) {
    const int tile = i / (SCALE_ROWS / 4), row = i % (SCALE_ROWS / 4) * 4;
    if (row < min(tokens * 4, args.x_rows))  // none where there are no tokens
      ptx::copy16_async(shared + SIZES.input_scale + i * 16,
                        args.x_scale + static_cast<i64>(tile) * args.x_rows + row);
  }
  ptx::commit_copies();
}

// ---- the router's rows of this block

constexpr int GATE_VECTORS = (HIDDEN / 8 + THREADS - 1) / THREADS;  // of 8 columns, of a thread
constexpr int LOGITS = EXPERT_ROWS * TOKENS;                        // of a block
struct GateRows {
  Bf16Vector<8> rows[EXPERT_ROWS][GATE_VECTORS] = {};

  static __forceinline__ int column(int v) { return (v * THREADS + ptx::thread_here()) * 8; }
  static __forceinline__ bool exists(int v) {
    return HIDDEN % (8 * THREADS) == 0 || column(v) < HIDDEN;
  }

  __forceinline__ void load(const bf16* gate, int block, bool all) {
#pragma unroll
    for (int r = 0; r < EXPERT_ROWS; ++r)
#pragma unroll
      for (int v = 0; v < GATE_VECTORS; ++v)
        if (exists(v) && all)
          rows[r][v] = Bf16Vector<8>::load(
              gate + static_cast<i64>(block * EXPERT_ROWS + r) * HIDDEN + column(v));
  }
};

// Adds up each of the values over the lanes; those with lane / (32 / COUNT) == i get value i. One
// order of the lanes whatever COUNT is.
template <int COUNT>
__forceinline__ float sum_lanes(float (&values)[LOGITS], int lane, int distance) {
  if constexpr (COUNT > 1) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i) {
      const float kept = upper ? values[COUNT / 2 + i] : values[i];
      const float given = upper ? values[i] : values[COUNT / 2 + i];
      values[i] = kept + __shfl_xor_sync(0xffffffffu, given, distance);
    }
    return sum_lanes<COUNT / 2>(values, lane, distance / 2);
  } else {
    float sum = values[0];
    for (; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    return sum;
  }
}

// This warp's part of the block's logits, to shared memory: token by token, its rows side by side.
__forceinline__ void score_experts(const SharedExpertFewArgs& args, int tokens, float* parts,
                                   int block, int warp, int lane) {
  GateRows gate;
  gate.load(args.router.gate, block, tokens > 0);
  constexpr int BATCH = TOKENS < 4 ? TOKENS : 4;  // tokens whose loads are in flight
  float sums[LOGITS];
#pragma unroll
  for (int i = 0; i < LOGITS; ++i)
    sums[i] = 0.0f;
#pragma unroll
  for (int first = 0; first < TOKENS; first += BATCH) {
    Bf16Vector<8> z[BATCH][GATE_VECTORS] = {};
#pragma unroll
    for (int t = 0; t < BATCH; ++t)
#pragma unroll
      for (int v = 0; v < GATE_VECTORS; ++v)
        if (GateRows::exists(v) && first + t < tokens)
          z[t][v] = Bf16Vector<8>::load(args.router.z + static_cast<i64>(first + t) * HIDDEN +
                                        GateRows::column(v));
#pragma unroll
    for (int t = 0; t < BATCH; ++t)
#pragma unroll
      for (int v = 0; v < GATE_VECTORS; ++v)
#pragma unroll
        for (int r = 0; r < EXPERT_ROWS; ++r) {
          float& sum = sums[(first + t) * EXPERT_ROWS + r];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const u32 a = z[t][v].pairs[i], b = gate.rows[r][v].pairs[i];
            sum = fmaf(low_to_float(a), low_to_float(b), sum);
            sum = fmaf(high_to_float(a), high_to_float(b), sum);
          }
        }
  }
  const float mine = sum_lanes<LOGITS>(sums, lane, 16);
  if (lane % (32 / LOGITS) == 0) parts[warp * LOGITS + lane / (32 / LOGITS)] = mine;
}

// One warp: the block's logits, to the workspace.
__forceinline__ void publish_logits(const SharedExpertFewArgs& args, int tokens, const float* parts,
                                    int block, int lane) {
  const int token = lane / EXPERT_ROWS;
  if (lane >= LOGITS) return;
  float sum = 0.0f;
#pragma unroll
  for (int w = 0; w < WARPS; ++w)
    sum += parts[w * LOGITS + lane];
  float* const logits =
      reinterpret_cast<float*>(static_cast<u8*>(args.router.workspace) + SHARED_FEW_LOGITS);
  if (token < tokens)
    ptx::store_relaxed(logits + token * EXPERTS + block * EXPERT_ROWS + lane % EXPERT_ROWS,
                       __float_as_uint(sum));
}

// ---- products

// sums += one tile's pieces of 16 lines x TOKENS, 128 columns.
// @param input   shared address of the tile's tokens
// @param scales  shared address of their scales
// @param upper, lower  the weights' scale of each piece's lines 0-7 and 8-15
template <int PIECES>
__forceinline__ void multiply_tile(Sums<PIECES>& sums, u32 weights, u32 input, u32 scales,
                                   const float (&upper)[PIECES], const float (&lower)[PIECES],
                                   int lane) {
  const u32 line = weights + lane % 16 * FP8_TILE;
  const int token = lane / 4 % TOKENS;  // tokens that are not there repeat others
  const u32 word = input + token * FP8_TILE + lane % 4 * 4;
  Sums<PIECES> part;
  clear<PIECES>(part);
#pragma unroll
  for (int pair = 0; pair < FP8_TILE / 32; ++pair) {
    u32 codes[PIECES][4];
#pragma unroll
    for (int p = 0; p < PIECES; ++p)
      ptx::load_matrices(codes[p],
                         line + p * PIECE_BYTES + (((pair * 2 + lane / 16) ^ (lane % 8)) * 16));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 x[TOKEN_BLOCKS][2];
#pragma unroll
      for (int j = 0; j < TOKEN_BLOCKS; ++j) {
        const u32 four = __float_as_uint(ptx::load_shared_float(
            word + j * (8 * FP8_TILE) + (((pair * 2 + half) ^ (token % 8)) * 16)));
        x[j][0] = fp8::to_f16(four);
        x[j][1] = fp8::high_to_f16(four);
      }
#pragma unroll
      for (int p = 0; p < PIECES; ++p) {
        const u32 a = codes[p][2 * half], b = codes[p][2 * half + 1];
        const u32 low[2] = {fp8::to_f16(a), fp8::to_f16(b)};
        const u32 high[2] = {fp8::high_to_f16(a), fp8::high_to_f16(b)};
#pragma unroll
        for (int j = 0; j < TOKEN_BLOCKS; ++j)
          mma::f16(part[p][j], low[0], low[1], high[0], high[1], x[j][0], x[j][1]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j) {
    float2 scale;  // of tokens 2c and 2c + 1
    if constexpr (TOKENS == 1)
      scale.x = scale.y = ptx::load_shared_float(scales);
    else
      scale = ptx::load_shared(scales + (lane % 4 * 2 % TOKENS + j * 8) * 4);
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      sums[p][j][0] = fmaf(part[p][j][0], scale.x * upper[p], sums[p][j][0]);
      sums[p][j][1] = fmaf(part[p][j][1], scale.y * upper[p], sums[p][j][1]);
      sums[p][j][2] = fmaf(part[p][j][2], scale.x * lower[p], sums[p][j][2]);
      sums[p][j][3] = fmaf(part[p][j][3], scale.y * lower[p], sums[p][j][3]);
    }
  }
}

// A warp's sums, to where its weights of gate and up were: [TOKENS][32 lines] of all pieces.
template <int PIECES>
__forceinline__ void leave_sums(const Sums<PIECES>& sums, float* to, bool dry, int lane) {
#pragma unroll
  for (int j = 0; j < TOKEN_BLOCKS; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int token = j * 8 + lane % 4 * 2 + e % 2;
      if (token < TOKENS && !dry) {
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
        reinterpret_cast<const float*>(memory + w * SIZES.up_warp)[token * SHARED_FEW_ROWS + line];
  return sum;
}

__forceinline__ void multiply_up(u32 shared, u8* memory, u32 gate_scale, u32 up_scale, bool dry,
                                 int warp, int lane) {
  Sums<UP_PIECES> sums;
  clear<UP_PIECES>(sums);
  const float gate_scales = fp8::ue8m0_value(gate_scale), up_scales = fp8::ue8m0_value(up_scale);
  const int tiles = dry ? min(1, tiles_of(warp, UP_TILES)) : tiles_of(warp, UP_TILES);
  if (!dry) barrier::wait(shared + SIZES.barriers + warp * 8, 0);
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    const float of_gate = __shfl_sync(0xffffffffu, gate_scales, i);
    const float of_up = __shfl_sync(0xffffffffu, up_scales, i);
    float upper[UP_PIECES], lower[UP_PIECES];
    upper[0] = of_gate;
    lower[0] = UP_PIECES == 2 ? of_gate : of_up;
    upper[UP_PIECES - 1] = UP_PIECES == 2 ? of_up : of_gate;
    lower[UP_PIECES - 1] = of_up;
    const int tile = warp + i * WARPS;
    multiply_tile<UP_PIECES>(sums, shared + warp * SIZES.up_warp + i * (UP_PIECES * PIECE_BYTES),
                             shared + SIZES.input + tile * TOKEN_BYTES,
                             shared + SIZES.input_scale + tile * (SCALE_ROWS * 4), upper, lower,
                             lane);
  }
  __syncwarp();  // sums go where all lanes have read
  leave_sums<UP_PIECES>(sums, reinterpret_cast<float*>(memory + warp * SIZES.up_warp), dry, lane);
}

// Rounded gate and up of this block's channels to their activation, to the workspace.
__forceinline__ void publish_activations(const SharedExpertFewArgs& args, int tokens,
                                         const u8* memory, bf16* activations, int block) {
  constexpr int COUNT = LINES * TOKENS;
  for (int i = ptx::thread_here(); i < (COUNT + 31) / 32 * 32; i += THREADS) {
    const int item = min(i, COUNT - 1), token = item / LINES, line = item % LINES;
    const float gate = to_float(to_bf16(join_sums<UP_TILES>(memory, token, line)));
    const float up = to_float(to_bf16(join_sums<UP_TILES>(memory, token, LINES + line)));
    const float h = swiglu(gate, up, args.limit);
    const float next = __shfl_xor_sync(0xffffffffu, h, 1);
    if (i < COUNT && line % 2 == 0 && token < tokens) {
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
  const int part = ptx::thread_here() % 16;
  uint4 words[BATCH];
  int token[BATCH], tile[BATCH];
  bool exists[BATCH];
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const int item = i * HALF_WARPS + ptx::thread_here() / 16;
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
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const fp8::Quantized group = fp8::quantize_group(words[i]);
    if (exists[i]) {
      *reinterpret_cast<uint2*>(memory + SIZES.input + tile[i] * TOKEN_BYTES + token[i] * FP8_TILE +
                                (part / 2 ^ token[i] % 8) * 16 + part % 2 * 8) = group.codes;
      if (part == 0) scales[tile[i] * SCALE_ROWS + token[i]] = group.scale;
    }
  }
}

__forceinline__ void multiply_down(u32 shared, u8* memory, u32 scale, bool dry, int warp,
                                   int lane) {
  Sums<DOWN_PIECES> sums;
  clear<DOWN_PIECES>(sums);
  const float scales = fp8::ue8m0_value(scale);
  const int tiles = dry ? min(1, tiles_of(warp, DOWN_TILES)) : tiles_of(warp, DOWN_TILES);
  if (!dry) barrier::wait(shared + SIZES.barriers + (WARPS + warp) * 8, 0);
#pragma unroll 1
  for (int i = 0; i < tiles; ++i) {
    const float of_tile = __shfl_sync(0xffffffffu, scales, i);
    const float both[DOWN_PIECES] = {of_tile, of_tile};
    const int tile = warp + i * WARPS;
    multiply_tile<DOWN_PIECES>(
        sums, shared + SIZES.down + warp * SIZES.down_warp + i * (DOWN_PIECES * PIECE_BYTES),
        shared + SIZES.input + tile * TOKEN_BYTES,
        shared + SIZES.input_scale + tile * (SCALE_ROWS * 4), both, both, lane);
  }
  leave_sums<DOWN_PIECES>(sums, reinterpret_cast<float*>(memory + warp * SIZES.up_warp), dry, lane);
}

__forceinline__ void store_output(const SharedExpertFewArgs& args, int tokens, const u8* memory,
                                  int block, int warp, int lane) {
  const DownLines down(block);
  for (int token = warp; token < TOKENS; token += WARPS) {
    const float sum = join_sums<DOWN_TILES>(memory, token, lane);
    const float next = __shfl_xor_sync(0xffffffffu, sum, 1);
    if (lane % 2 == 0 && token < tokens)
      *reinterpret_cast<u32*>(args.out + static_cast<i64>(token) * HIDDEN + down.strip * FP8_TILE +
                              fp8_tile_row(down.line + lane)) = pack_bf16(sum, next);
  }
}

// The last block.
__forceinline__ void choose_experts(const SharedExpertFewArgs& args, u8* memory, int warp,
                                    int lane) {
  using Logits = router::Logits<EXPERTS>;
  float bias[Logits::WORDS][4];
  if constexpr (!HASH) {
#pragma unroll
    for (int w = 0; w < Logits::WORDS; ++w)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        bias[w][e] = Logits::exists(w, lane)
                         ? ptx::load_float(args.router.bias + Logits::first_expert(w, lane) + e)
                         : 0.0f;
  }
  release_successor();
  u8* const workspace = static_cast<u8*>(args.router.workspace);
  u8* const scratch = memory + WARPS * EXPERTS * 4;  // what is chosen dry goes there
  float* const scores = reinterpret_cast<float*>(memory) + warp * EXPERTS;
  const int tokens = args.router.tokens;
#pragma unroll 1
  for (int dry = 1; dry >= 0; --dry) {
    RouterTopkArgs to = args.router;
    if (dry != 0) {
      to.experts = reinterpret_cast<int*>(scratch);
      to.weights = reinterpret_cast<float*>(scratch + TOKENS * TOP * 4);
    } else {
      wait_for_predecessor();
    }
#pragma unroll 1
    for (int token = warp; token < tokens; token += WARPS) {
      const int listed =
          HASH && dry == 0 ? router::listed_expert<EXPERTS, TOP>(args.router, token, lane) : 0;
      Logits logits{};
      if (dry == 0)
        logits.take(reinterpret_cast<float*>(workspace + SHARED_FEW_LOGITS) + token * EXPERTS,
                    lane);
      router::choose<EXPERTS, TOP, HASH>(
          to, logits, scores, token, lane, [&](int w, int e) { return bias[w][e]; }, listed);
    }
  }
  // Each block has added one to kNothing when it had read the activations.
  if (ptx::thread_here() == THREADS - 1) {
    while (ptx::load_relaxed_word(workspace) != BLOCKS + split_k::kNothing) {
    }
    ptx::store_relaxed(workspace, split_k::kNothing);
  }
  __syncthreads();
  u8* const activations = workspace + shared_expert_few_activations(tokens, EXPERTS);
  for (int i = ptx::thread_here(); i < tokens * (INTER / 8); i += THREADS)
    ptx::store_relaxed(activations + i * 16, make_uint4(split_k::kNothing, split_k::kNothing,
                                                        split_k::kNothing, split_k::kNothing));
}

// Of a tile per lane, as they are stored.
struct TileScales {
  u32 gate, up, down;
};

// The work behind the launch's turn, or the same dry.
__forceinline__ void run(const SharedExpertFewArgs& args, u32 shared, u8* memory,
                         const TileScales& scales, int block, bool dry) {
  // Read here, so that no address is kept from one time to the next.
  const int warp = ptx::thread_here() / 32, lane = ptx::thread_here() % 32;
  const int tokens = dry ? 0 : args.router.tokens;
  const bool has_channels = block < CHANNEL_BLOCKS;
  float* const logits = reinterpret_cast<float*>(memory + SIZES.logits);
  bf16* const activations =
      reinterpret_cast<bf16*>(static_cast<u8*>(args.router.workspace) +
                              shared_expert_few_activations(args.router.tokens, EXPERTS));
  start_input(args, shared, tokens);
  score_experts(args, tokens, logits, block, warp, lane);
  ptx::wait_copies<0>();
  __syncthreads();
  if (warp == WARPS - 1) publish_logits(args, tokens, logits, block, lane);
  if (has_channels) multiply_up(shared, memory, scales.gate, scales.up, dry, warp, lane);
  __syncthreads();
  if (has_channels) publish_activations(args, tokens, memory, activations, block);
  gather_activations(tokens, memory, activations);
  __syncthreads();
  if (warp == 0 && lane == 0 && !dry) atomicAdd(static_cast<u32*>(args.router.workspace), 1u);
  multiply_down(shared, memory, scales.down, dry, warp, lane);
  __syncthreads();
  store_output(args, tokens, memory, block, warp, lane);
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
#pragma unroll 1
  for (int dry = 1; dry >= 0; --dry) {
    if (dry == 0) wait_for_predecessor();
    run(args, shared, memory, {gate_scale, up_scale, down_scale}, block, dry != 0);
  }
}

}  // namespace ingot::kernels
