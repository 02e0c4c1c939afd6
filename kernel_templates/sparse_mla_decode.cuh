// Sparse MLA decode: attention of each query row over its window and its selected keys, FP8 entries
// in two paged pools, in one launch with the reduction over splits inside. mma.sync, every card.
// Launch contract (host twin: launch_shape in sparse_mla_decode.space.hpp)
//   grid (NSPLIT, heads / TILE_HEADS, rows)
//   block (KEY_GROUPS * (256 / SLABS_PER_WARP + 32 * PRODUCER_WARPS))
//   smem sparse_mla_decode_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   arch sm_80 and later; BULK_COPY sm_90 and later
//   NSPLIT > 1: all blocks of the launch are resident at once (checked by the host), and the
//   exchange buffers hold 0xff bytes; one launch at a time uses them
//
// Operands are swapped: keys (QK) and value dimensions (PV) are M of the mma, heads are N, so that
// 8 heads cost an eighth of 64. The 512 dimensions are 8 slabs of 64: the 7 scale groups and the
// rope part. A math warp owns SLABS_PER_WARP slabs in both products: its part of Q stays in
// registers, the warps' partial S^T are added through shared memory, and a scale is one number per
// key and slab, which multiplies S^T (fp32) and P (f16), never K or V. FP8 stays FP8 in shared
// memory and becomes f16 on the way to the mma, exactly. What a tile costs is mostly latency, so a
// block has several groups of math warps where registers allow, each with its own keys.
//
// QK_BLOCK_SCALED: where the tensor cores take e4m3 with a power-of-two scale per row, K needs no
// conversion at all. Q becomes hi + lo, both e4m3 with scales 2^4 apart: 8 significant bits, as
// bf16 has, down to 2^-13 of the largest of 64 dimensions.
//
// Numerics: fp32 accumulation; P in f16 (bf16 for the rope slab, whose values are bf16). Group
// scales act exactly (common/sparse_mla.cuh: units). The running maximum moves only when it grows
// by more than 2^GROWTH, which rescales O seldom. Every sum has a fixed order. A row without keys
// gives zeros, with and without sink. Unused slots weigh 0. NaN in q or in a key gives NaN in that
// row alone: a block works for one row, and its shared memory starts from zeros.
#include "common/barrier.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/mma.cuh"
#include "common/ptx.cuh"
#include "sparse_mla_decode.args.h"
#if !defined(INGOT_PARAMS_GENERATED) && !defined(SPARSE_MLA_PREFILL)  // editor, stand-alone nvcc
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sparse_mla_decode.params.def"
#undef PARAM
#endif
#include "common/sparse_mla.cuh"
#include "common/sparse_mla_producer.cuh"

namespace ingot::kernels {

constexpr int SLABS = 8, QUANT_SLABS = 7;
constexpr int GROUP_WARPS = SLABS / SLABS_PER_WARP, GROUP_THREADS = GROUP_WARPS * 32;
constexpr int MATH_WARPS = KEY_GROUPS * GROUP_WARPS;
constexpr int WARP_HEADS = TILE_HEADS / GROUP_WARPS;  // whose softmax is one warp's
constexpr int THREADS = KEY_GROUPS * (GROUP_THREADS + 32 * PRODUCER_WARPS);
constexpr int HEAD_TILES = TILE_HEADS / 8, KEY_STEPS = TILE_KV / 16;  // mma tiles
constexpr int PIECES = NSPLIT * KEY_GROUPS;
// In a prompt's block, which has all keys of a row, the warp that has a head's softmax makes the
// factor of O. Some blocks of decode have no register for that.
#ifdef SPARSE_MLA_PREFILL
constexpr bool ONE_PIECE = true;
static_assert(PIECES == 1, "a row has one block");
#else
constexpr bool ONE_PIECE = false;
#endif
constexpr int SCORE_STRIDE = TILE_KV + MLA_SCORE_PAD, WEIGHT_STRIDE = TILE_KV + MLA_WEIGHT_PAD;
constexpr int STAGED_STRIDE = MLA_DIMS + MLA_STAGED_PAD;
// P is at most 2^(BOOST + GROWTH), within f16, and usually 2^BOOST at its largest.
constexpr float GROWTH = 6.0f, BOOST = 8.0f;
constexpr int UNIT_FLOOR = -64;
constexpr int Q_LOW_BITS = 4;
constexpr float Q_LOW_FACTOR = 1 << Q_LOW_BITS;

static_assert(TILE_HEADS == 8 || TILE_HEADS == 16 || TILE_HEADS == 32, "N of the mma");
static_assert(TILE_KV % 16 == 0 && TILE_KV <= 32 * PRODUCER_WARPS, "a producer lane has one key");
static_assert(KEY_GROUPS * STAGES <= 32, "one lane sets up one stage");
static_assert(NSPLIT >= 1 && NSPLIT <= 64 && MLA_DIMS % (4 * NSPLIT) == 0, "whole float4s");
static_assert(SLABS_PER_WARP == 1 || SLABS_PER_WARP == 2, "8 or 4 math warps in a group");
static_assert(THREADS <= 1024, "a block");

struct alignas(128) Group {
  union {
    struct {
      u8 rows[STAGES][TILE_KV][MLA_SMEM_ROW_BYTES];
      float scores[GROUP_WARPS][TILE_HEADS][SCORE_STRIDE];  // partial S^T of each warp
      uint2 scales[SCALES_BESIDE ? 1 : STAGES][SCALES_BESIDE ? 1 : TILE_KV];
    } tiles;
    float staged[NSPLIT > 1 ? 1 : TILE_HEADS][STAGED_STRIDE];  // O of an unsplit group
  };
  alignas(16) u16 weights[TILE_HEADS][WEIGHT_STRIDE];  // P, f16
  float corrections[TILE_HEADS];                       // of O, when a maximum moved
  u16 factors[QUANT_SLABS][TILE_KV];  // scale over unit, f16; a row belongs to one warp
  float rope_factors[TILE_KV];        // 1 / unit, for the rope slab's warp
  int used[STAGES][TILE_KV];          // 0: unused slot
};
struct SharedStorage {
  Group groups[KEY_GROUPS];
  u64 full[KEY_GROUPS][STAGES], empty[KEY_GROUPS][STAGES];
  float2 rotations[MLA_ROPE_DIMS / 2];  // (cosine, sine)
  float2 sums[KEY_GROUPS][TILE_HEADS];  // (m, l) of the groups, NSPLIT == 1
  float factors[PIECES][TILE_HEADS];    // of the pieces' O
};
constexpr int SMEM_BYTES = sparse_mla_decode_smem_bytes(TILE_HEADS, TILE_KV, STAGES, KEY_GROUPS,
                                                        NSPLIT, SLABS_PER_WARP, SCALES_BESIDE);
static_assert(sizeof(SharedStorage) <= SMEM_BYTES, "the host's formula covers the storage");
static_assert(sizeof(SharedStorage) + 127 >= SMEM_BYTES, "the host's formula wastes nothing");

using Ring = sparse_mla::Ring<STAGES, TILE_KV, PRODUCER_WARPS>;

// The scale bytes of a key that has landed.
__forceinline__ const uint2* scales_of(const Group& group, int stage, int key) {
  if constexpr (SCALES_BESIDE)
    return reinterpret_cast<const uint2*>(&group.tiles.rows[stage][key][MLA_ENTRY_BYTES]);
  else
    return &group.tiles.scales[stage][key];
}

// Steps of 16 keys that are in work at once: their mma chains overlap, and nothing is stored before
// all of them have been loaded, since the compiler keeps a load behind the stores before it. As
// many as the registers beside Q and O hold; no more than 2 beside a second slab's.
constexpr int steps_at_once() {
  const int registers = 65536 / (sparse_mla_round_up(THREADS, 128) * BLOCKS_PER_SM) / 8 * 8;
  const int beside = (registers < 168 ? registers : 168) - 40 - 24 * SLABS_PER_WARP * HEAD_TILES;
  const int steps = beside / (8 + 8 * HEAD_TILES);
  const int most = SLABS_PER_WARP == 2 ? 2 : 4;
  return steps < 1 ? 1 : steps > most ? most : steps;
}
constexpr int STEPS_AT_ONCE = steps_at_once() < KEY_STEPS ? steps_at_once() : KEY_STEPS;

// One math warp: its slabs of the 512 dimensions, for the keys of its group.
struct MathWarp {
  Group& group;
  int index, lane, row, column;  // lane = 4 * row + column, as fragments count
  int barrier_id;

  u32 q[SLABS_PER_WARP][HEAD_TILES][4][2];     // B fragments of 4 k-steps
  int q_exponent[SLABS_PER_WARP][HEAD_TILES];  // QK_BLOCK_SCALED: of hi's scale
  float o[SLABS_PER_WARP][4][HEAD_TILES][4];
  // The softmax of heads index * WARP_HEADS … is this warp's: maxima are the warp's, sums a lane's.
  float maximum[WARP_HEADS], sum[WARP_HEADS];

  __forceinline__ MathWarp(Group& g, int warp_in_group, int lane_, int id)
      : group(g),
        index(warp_in_group),
        lane(lane_),
        row(lane_ / 4),
        column(lane_ % 4),
        barrier_id(id) {
#pragma unroll
    for (int h = 0; h < WARP_HEADS; ++h) {
      maximum[h] = sparse_mla::negative_infinity();
      sum[h] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < SLABS_PER_WARP; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            o[k][i][n][e] = 0.0f;
  }
  __forceinline__ int slab(int k) const {
    return index * SLABS_PER_WARP + k;
  }
  __forceinline__ bool is_rope(int k) const {
    return k == SLABS_PER_WARP - 1 && index == GROUP_WARPS - 1;
  }
  __forceinline__ void sync() const {
    ptx::sync_threads(barrier_id, GROUP_THREADS);
  }

  // FP8 slabs: the 16 dimensions of a k-step are permuted so that a lane's share of K is one 32-bit
  // word of codes. Rope slab: in order, bf16.
  __forceinline__ void request_q(const bf16* heads) {
#pragma unroll
    for (int k = 0; k < SLABS_PER_WARP; ++k)
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n) {
        const bf16* from = heads + static_cast<i64>(n * 8 + row) * MLA_DIMS + slab(k) * 64;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (is_rope(k)) {
            const int* words = reinterpret_cast<const int*>(from + j * 16 + column * 2);
            q[k][n][j][0] = static_cast<u32>(ptx::load_int(words));
            q[k][n][j][1] = static_cast<u32>(ptx::load_int(words + 4));
          } else {
            const uint2 words = ptx::load_pair(from + j * 16 + column * 4);
            q[k][n][j][0] = words.x;
            q[k][n][j][1] = words.y;
          }
        }
      }
  }
  __forceinline__ void convert_q() {
#pragma unroll
    for (int k = 0; k < SLABS_PER_WARP; ++k) {
      if (is_rope(k)) continue;
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n) {
        if constexpr (QK_BLOCK_SCALED) {
          q_exponent[k][n] = split(q[k][n]);
        } else {
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int x = 0; x < 2; ++x)
              q[k][n][j][x] = pack_f16(low_to_float(q[k][n][j][x]), high_to_float(q[k][n][j][x]));
        }
      }
    }
  }
  // A head's 64 dimensions as two e4m3 numbers: words[j][0] becomes 4 dimensions of hi, [1] of lo.
  // Returns the exponent of hi's scale.
  __forceinline__ static int split(u32 (&words)[4][2]) {
    float largest = 0.0f;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int x = 0; x < 2; ++x)
        largest = fmaxf(largest,
                        fmaxf(fabsf(low_to_float(words[j][x])), fabsf(high_to_float(words[j][x]))));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    const int exponent = fp8::scale_exponent(largest);
    const float inverse = fp8::inverse_power_of_two(exponent);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      u32 high = 0, low = 0;
#pragma unroll
      for (int x = 0; x < 2; ++x) {
        const float a = low_to_float(words[j][x]) * inverse,
                    b = high_to_float(words[j][x]) * inverse;
        const u32 codes = fp8::from_floats(a, b), f16 = fp8::to_f16(codes);
        high |= codes << (16 * x);
        low |= fp8::from_floats((a - f16_low_to_float(f16)) * Q_LOW_FACTOR,
                                (b - f16_high_to_float(f16)) * Q_LOW_FACTOR)
               << (16 * x);
      }
      words[j][0] = high;
      words[j][1] = low;
    }
    return exponent;
  }

  using Scores = float[STEPS_AT_ONCE][HEAD_TILES][4];
  // Adds one slab's products of steps first … first + count - 1, in true scale, to s.
  __forceinline__ void add_products(Scores& s, int k, int stage, int first, int count) const {
    constexpr u32 HIGH = 8 * MLA_SMEM_ROW_BYTES, STEP = 2 * HIGH;  // keys row + 8; 16 keys
    const u32 from = ptx::shared_address(group.tiles.rows[stage]) + first * STEP +
                     (lane % 8) * MLA_SMEM_ROW_BYTES + slab(k) * 64 + lane / 8 * 16;
    u32 low[STEPS_AT_ONCE][4], high[STEPS_AT_ONCE][4];
    const auto load = [&](u32 offset) {
#pragma unroll
      for (int t = 0; t < STEPS_AT_ONCE; ++t) {
        if (t >= count) break;
        ptx::load_matrices(low[t], from + t * STEP + offset);
        ptx::load_matrices(high[t], from + t * STEP + offset + HIGH);
      }
    };
    load(0);
    if (is_rope(k)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (half == 1) load(64);
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int t = 0; t < STEPS_AT_ONCE; ++t) {
            if (t >= count) break;
#pragma unroll
            for (int n = 0; n < HEAD_TILES; ++n)
              mma::bf16(s[t][n], low[t][2 * j], high[t][2 * j], low[t][2 * j + 1],
                        high[t][2 * j + 1], q[k][n][2 * half + j][0], q[k][n][2 * half + j][1]);
          }
      }
      return;
    }
    if constexpr (QK_BLOCK_SCALED) {
#pragma unroll
      for (int t = 0; t < STEPS_AT_ONCE; ++t) {
        if (t >= count) break;
        const u32 scale = reinterpret_cast<const u8*>(
            scales_of(group, stage, (first + t) * 16 + row + column % 2 * 8))[slab(k)];
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
          for (int j = 0; j < 4; j += 2)
#pragma unroll
            for (int part = 0; part < 2; ++part)
              mma::e4m3_block_scaled(s[t][n], low[t][j], high[t][j], low[t][j + 1], high[t][j + 1],
                                     q[k][n][j][part], q[k][n][j + 1][part], scale,
                                     static_cast<u32>(q_exponent[k][n] + 127 - Q_LOW_BITS * part));
      }
      return;
    }
    constexpr int KEY_BYTES = SCALES_BESIDE ? MLA_SMEM_ROW_BYTES : MLA_SCALE_BYTES;
    const u8* scale =
        reinterpret_cast<const u8*>(scales_of(group, stage, first * 16 + row)) + slab(k);
    u32 low_scale[STEPS_AT_ONCE], high_scale[STEPS_AT_ONCE];
    Scores part = {};
#pragma unroll
    for (int t = 0; t < STEPS_AT_ONCE; ++t) {
      if (t >= count) break;
      low_scale[t] = scale[t * 16 * KEY_BYTES];
      high_scale[t] = scale[(t * 16 + 8) * KEY_BYTES];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int t = 0; t < STEPS_AT_ONCE; ++t) {
        if (t >= count) break;
        const u32 a0 = fp8::to_f16(low[t][j]), a1 = fp8::to_f16(high[t][j]),
                  a2 = fp8::high_to_f16(low[t][j]), a3 = fp8::high_to_f16(high[t][j]);
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n)
          mma::f16(part[t][n], a0, a1, a2, a3, q[k][n][j][0], q[k][n][j][1]);
      }
#pragma unroll
    for (int t = 0; t < STEPS_AT_ONCE; ++t) {
      if (t >= count) break;
      const float low_factor = __uint_as_float(low_scale[t] << 23) * fp8::kF16Factor;
      const float high_factor = __uint_as_float(high_scale[t] << 23) * fp8::kF16Factor;
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n) {
        s[t][n][0] = fmaf(part[t][n][0], low_factor, s[t][n][0]);
        s[t][n][1] = fmaf(part[t][n][1], low_factor, s[t][n][1]);
        s[t][n][2] = fmaf(part[t][n][2], high_factor, s[t][n][2]);
        s[t][n][3] = fmaf(part[t][n][3], high_factor, s[t][n][3]);
      }
    }
  }
  // Partial S^T of this warp's slabs.
  __forceinline__ void multiply_keys(int stage) {
    const auto all_steps = [&](auto&& add) {
#pragma unroll
      for (int first = 0; first < KEY_STEPS; first += STEPS_AT_ONCE) {
        const int count = KEY_STEPS - first < STEPS_AT_ONCE ? KEY_STEPS - first : STEPS_AT_ONCE;
        Scores s = {};
        add(s, first, count);
#pragma unroll
        for (int t = 0; t < STEPS_AT_ONCE; ++t) {
          if (t >= count) break;
#pragma unroll
          for (int n = 0; n < HEAD_TILES; ++n) {
            float* to = &group.tiles.scores[index][n * 8 + 2 * column][(first + t) * 16 + row];
            to[0] = s[t][n][0];
            to[SCORE_STRIDE] = s[t][n][1];
            to[8] = s[t][n][2];
            to[SCORE_STRIDE + 8] = s[t][n][3];
          }
        }
      }
    };
    // The last warp's path is another one: decided once, not per step.
    const auto add_slabs = [&](Scores& s, int first, int count) {
#pragma unroll
      for (int k = 0; k < SLABS_PER_WARP; ++k)
        add_products(s, k, stage, first, count);
    };
    if (is_rope(SLABS_PER_WARP - 1))
      all_steps(add_slabs);
    else
      all_steps(add_slabs);
  }

  // A lane's keys in the softmax: VECTOR adjacent ones per pass.
  static constexpr int VECTOR = TILE_KV > 32 ? 2 : 1;
  static constexpr int PASSES = (TILE_KV + 32 * VECTOR - 1) / (32 * VECTOR);
  __forceinline__ int key_of(int pass) const {
    return (pass * 32 + lane) * VECTOR;
  }
  __forceinline__ static bool exists(int key) {
    return TILE_KV % (32 * VECTOR) == 0 || key < TILE_KV;
  }
  struct KeyTerm {
    float inverse;  // of the key's unit
    float log2;     // of the unit; -inf for an unused slot
  };

  // Units of the lane's keys, and these slabs' factors of P: scale over unit. Needs no scores, so
  // it runs in the shadow of the mma.
  __forceinline__ void prepare_keys(KeyTerm (&terms)[PASSES][VECTOR], int stage) {
#pragma unroll
    for (int p = 0; p < PASSES; ++p)
#pragma unroll
      for (int v = 0; v < VECTOR; ++v) {
        const int key = key_of(p) + v;
        terms[p][v] = {0.0f, sparse_mla::negative_infinity()};
        if (!exists(key)) continue;
        const uint2 scales = *scales_of(group, stage, key);
        const bool used = group.used[stage][key] != 0;
        const sparse_mla::Unit unit =
            used ? sparse_mla::unit_of<0, UNIT_FLOOR>(scales) : sparse_mla::Unit{0};
        terms[p][v] = {unit.inverse(),
                       used ? static_cast<float>(unit.exponent) : sparse_mla::negative_infinity()};
#pragma unroll
        for (int k = 0; k < SLABS_PER_WARP; ++k) {
          if (is_rope(k)) {
            group.rope_factors[key] = terms[p][v].inverse;
          } else {
            const u32 scale = (slab(k) < 4 ? scales.x : scales.y) >> (8 * (slab(k) % 4)) & 0xffu;
            group.factors[slab(k)][key] = static_cast<u16>(sparse_mla::relative_scale(scale, unit));
          }
        }
      }
  }

  // Softmax weights of this warp's heads.
  __forceinline__ void weigh(const KeyTerm (&terms)[PASSES][VECTOR]) {
    float score[WARP_HEADS][PASSES][VECTOR];
    float largest[WARP_HEADS];
    bool grows = false;
#pragma unroll
    for (int n = 0; n < WARP_HEADS; ++n) {
      largest[n] = sparse_mla::negative_infinity();
#pragma unroll
      for (int p = 0; p < PASSES; ++p) {
        const int key = key_of(p);
        float s[VECTOR] = {};
        if (exists(key)) {
#pragma unroll
          for (int warp = 0; warp < GROUP_WARPS; ++warp) {
            const float* from = &group.tiles.scores[warp][index * WARP_HEADS + n][key];
            if constexpr (VECTOR == 2) {
              const float2 pair = *reinterpret_cast<const float2*>(from);
              s[0] += pair.x;
              s[VECTOR - 1] += pair.y;
            } else {
              s[0] += *from;
            }
          }
        }
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
          score[n][p][v] = fmaf(s[v], sparse_mla::SCORE_SCALE, terms[p][v].log2);
          largest[n] = fmaxf(largest[n], score[n][p][v]);
        }
      }
      grows |= largest[n] > maximum[n] + GROWTH;
    }
    // Only when a maximum moves is it needed exactly.
    const bool moves = __any_sync(0xffffffffu, grows);
    float correction[WARP_HEADS];
#pragma unroll
    for (int n = 0; n < WARP_HEADS; ++n)
      correction[n] = 1.0f;
    if (moves) {
#pragma unroll
      for (int n = 0; n < WARP_HEADS; ++n) {
#pragma unroll
        for (int lanes = 16; lanes > 0; lanes /= 2)
          largest[n] = fmaxf(largest[n], __shfl_xor_sync(0xffffffffu, largest[n], lanes));
        if (largest[n] > maximum[n] + GROWTH) {
          correction[n] = exp2_approx(maximum[n] - largest[n]);
          maximum[n] = largest[n];
          sum[n] *= correction[n];
        }
      }
    }
#pragma unroll
    for (int n = 0; n < WARP_HEADS; ++n) {
      const float base = maximum[n] == sparse_mla::negative_infinity() ? 0.0f : maximum[n] - BOOST;
#pragma unroll
      for (int p = 0; p < PASSES; ++p) {
        float weight[VECTOR];
#pragma unroll
        for (int v = 0; v < VECTOR; ++v) {
          weight[v] = exp2_approx(score[n][p][v] - base);
          sum[n] = fmaf(weight[v], terms[p][v].inverse, sum[n]);
        }
        if (exists(key_of(p))) {
          u16* to = &group.weights[index * WARP_HEADS + n][key_of(p)];
          if constexpr (VECTOR == 2)
            *reinterpret_cast<u32*>(to) = pack_f16(weight[0], weight[VECTOR - 1]);
          else
            *to = static_cast<u16>(pack_f16(weight[0], 0.0f));
        }
      }
      if (lane == 0) group.corrections[index * WARP_HEADS + n] = correction[n];
    }
  }

  __forceinline__ void rescale() {
    float2 correction[HEAD_TILES];
    bool any = false;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      correction[n] = *reinterpret_cast<const float2*>(&group.corrections[n * 8 + 2 * column]);
      any |= correction[n].x != 1.0f || correction[n].y != 1.0f;
    }
    if (!__any_sync(0xffffffffu, any)) return;
#pragma unroll
    for (int k = 0; k < SLABS_PER_WARP; ++k)
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          o[k][i][n][0] *= correction[n].x;
          o[k][i][n][1] *= correction[n].y;
          o[k][i][n][2] *= correction[n].x;
          o[k][i][n][3] *= correction[n].y;
        }
  }
  // B fragments of P for 16 keys.
  __forceinline__ void load_weights(u32 (&b)[HEAD_TILES][2], int step) const {
    const u32 from = ptx::shared_address(group.weights) + step * 32 + lane / 8 % 2 * 16;
    constexpr int ROW = WEIGHT_STRIDE * 2;
    if constexpr (HEAD_TILES == 1) {
      ptx::load_matrices(b[0], from + (lane % 8) * ROW);
    } else {
#pragma unroll
      for (int n = 0; n < HEAD_TILES; n += 2) {
        u32 r[4];
        ptx::load_matrices(r, from + (n * 8 + lane % 8 + lane / 16 * 8) * ROW);
        b[n][0] = r[0];
        b[n][1] = r[1];
        b[n + 1][0] = r[2];
        b[n + 1][1] = r[3];
      }
    }
  }
  // O^T += V^T P^T of 16 keys for one slab. The bytes of two keys that a transposed load brings
  // together belong to dimensions 2 * row and 2 * row + 1, which are taken as rows row and row + 8
  // of A; rope dimensions lie in order.
  __forceinline__ void add_values(const u32 (&weights)[HEAD_TILES][2], int k, int stage, int step) {
    const u32 tile = ptx::shared_address(group.tiles.rows[stage]) + step * 16 * MLA_SMEM_ROW_BYTES +
                     slab(k) * 64;
    u32 b[HEAD_TILES][2];
    if (!is_rope(k)) {
      const u32* factor =
          reinterpret_cast<const u32*>(&group.factors[slab(k)][step * 16 + 2 * column]);
      const u32 low = factor[0], high = factor[4];
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n) {
        b[n][0] = multiply_f16(weights[n][0], low);
        b[n][1] = multiply_f16(weights[n][1], high);
      }
      const u32 from = tile + (lane % 16) * MLA_SMEM_ROW_BYTES + lane / 16 * 16;
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        u32 r[4];
        ptx::load_matrices_transposed(r, from + i * 16);
#pragma unroll
        for (int x = 0; x < 4; ++x)
          r[x] = __byte_perm(r[x], 0, 0x3120);
#pragma unroll
        for (int x = 0; x < 2; ++x) {
          const u32 a0 = fp8::to_f16(r[2 * x]), a1 = fp8::high_to_f16(r[2 * x]),
                    a2 = fp8::to_f16(r[2 * x + 1]), a3 = fp8::high_to_f16(r[2 * x + 1]);
#pragma unroll
          for (int n = 0; n < HEAD_TILES; ++n)
            mma::f16(o[k][i + x][n], a0, a1, a2, a3, b[n][0], b[n][1]);
        }
      }
    } else {
      // P relative to the keys' units, for values in true scale.
      const float* factor = &group.rope_factors[step * 16 + 2 * column];
      const float2 inverse[2] = {*reinterpret_cast<const float2*>(factor),
                                 *reinterpret_cast<const float2*>(factor + 8)};
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
        for (int x = 0; x < 2; ++x)
          b[n][x] = pack_bf16(f16_low_to_float(weights[n][x]) * inverse[x].x,
                              f16_high_to_float(weights[n][x]) * inverse[x].y);
      const u32 from = tile + (lane % 8 + lane / 16 * 8) * MLA_SMEM_ROW_BYTES + lane / 8 % 2 * 16;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        u32 r[4];
        ptx::load_matrices_transposed(r, from + i * 32);
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n)
          mma::bf16(o[k][i][n], r[0], r[1], r[2], r[3], b[n][0], b[n][1]);
      }
    }
  }
  __forceinline__ void multiply_values(int stage) {
    const auto all_steps = [&](auto&& add) {
#pragma unroll
      for (int step = 0; step < KEY_STEPS; ++step) {
        u32 weights[HEAD_TILES][2];
        load_weights(weights, step);
        add(weights, step);
      }
    };
    const auto add_slabs = [&](const u32(&weights)[HEAD_TILES][2], int step) {
#pragma unroll
      for (int k = 0; k < SLABS_PER_WARP; ++k)
        add_values(weights, k, stage, step);
    };
    if (is_rope(SLABS_PER_WARP - 1))
      all_steps(add_slabs);
    else
      all_steps(add_slabs);
  }

  // Hands (first dimension, head of the tile, two values, distance of their dimensions) to `put`.
  template <class Put>
  __forceinline__ void for_each_result(Put&& put) const {
#pragma unroll
    for (int k = 0; k < SLABS_PER_WARP; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int n = 0; n < HEAD_TILES; ++n) {
          const int head = n * 8 + 2 * column, dim = slab(k) * 64 + i * 16;
          const float(&x)[4] = o[k][i][n];
          if (!is_rope(k)) {
            put(dim + 2 * row, head, x[0] * fp8::kF16Factor, x[2] * fp8::kF16Factor, 1);
            put(dim + 2 * row, head + 1, x[1] * fp8::kF16Factor, x[3] * fp8::kF16Factor, 1);
          } else {
            put(dim + row, head, x[0], x[2], 8);
            put(dim + row, head + 1, x[1], x[3], 8);
          }
        }
  }
  __forceinline__ void finish_sums() {
#pragma unroll
    for (int h = 0; h < WARP_HEADS; ++h)
#pragma unroll
      for (int lanes = 16; lanes > 0; lanes /= 2)
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], lanes);
  }
};

// The partial result of one group: to the sibling blocks, or to the staging area of an unsplit row.
// @param sink  ONE_PIECE: lane h has that of the warp's head h
__forceinline__ void publish(MathWarp& math, Group& group, SharedStorage& shared, float* values,
                             float2* sums, int piece, int g, float sink) {
  if constexpr (NSPLIT > 1) {
    float* const to = values + static_cast<i64>(piece) * (TILE_HEADS * MLA_DIMS);
    math.for_each_result([&](int dim, int head, float first, float second, int distance) {
      float* at = to + head * MLA_DIMS + dim;
      if (distance == 1) {
        sparse_mla::send(at, first, second);
      } else {
        sparse_mla::send(at, first);
        sparse_mla::send(at + distance, second);
      }
    });
    math.finish_sums();
#pragma unroll
    for (int h = 0; h < WARP_HEADS; ++h)
      for (int split = math.lane; split < NSPLIT; split += 32)
        sparse_mla::send(reinterpret_cast<float*>(sums + (split * PIECES + piece) * TILE_HEADS +
                                                  math.index * WARP_HEADS + h),
                         math.maximum[h] - BOOST, math.sum[h]);
  } else {
    math.finish_sums();
    if constexpr (ONE_PIECE) {
      float2 own = sparse_mla::Merge<PIECES>::none();  // lane h: of head h
#pragma unroll
      for (int h = 0; h < WARP_HEADS; ++h)
        if (math.lane == h) own = make_float2(math.maximum[h] - BOOST, math.sum[h]);
      if (math.lane < WARP_HEADS)
        shared.factors[0][math.index * WARP_HEADS + math.lane] =
            sparse_mla::Merge<PIECES>::factor(own, sink);
    } else if (math.lane == 0) {
#pragma unroll
      for (int h = 0; h < WARP_HEADS; ++h)
        shared.sums[g][math.index * WARP_HEADS + h] =
            make_float2(math.maximum[h] - BOOST, math.sum[h]);
    }
    math.sync();  // every warp of the group is done with the tiles
    math.for_each_result([&](int dim, int head, float first, float second, int distance) {
      float* at = &group.staged[head][dim];
      if (distance == 1) {
        *reinterpret_cast<float2*>(at) = make_float2(first, second);
      } else {
        at[0] = first;
        at[distance] = second;
      }
    });
  }
}

// All threads, an unsplit row: merges the groups' results and writes them.
__forceinline__ void write_staged(const SparseMlaDecodeArgs& args, SharedStorage& shared, int row,
                                  int first_head, float first_sink) {
  __syncthreads();
  if constexpr (!ONE_PIECE) {
    using Weights = sparse_mla::Merge<PIECES>;
    Weights::factors<HAS_SINK, TILE_HEADS, THREADS>(
        shared.factors, args.sink + first_head, first_sink,
        Weights::merges_first<TILE_HEADS>(threadIdx.x)
            ? shared.sums[threadIdx.x % Weights::LANES][Weights::first_head(threadIdx.x)]
            : Weights::none(),
        threadIdx.x, [&](int g, int head) { return shared.sums[g][head]; });
    __syncthreads();
  }
  // Of one piece by the warps that made it.
  constexpr int WORDS = MLA_DIMS / 4, WRITERS = ONE_PIECE ? MATH_WARPS * 32 : THREADS;
  if (threadIdx.x >= WRITERS) return;
  for (int i = threadIdx.x; i < TILE_HEADS * WORDS; i += WRITERS) {
    const int head = i / WORDS, dim = i % WORDS * 4;
    float4 o = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int g = 0; g < KEY_GROUPS; ++g) {
      const float factor = shared.factors[g][head];
      const float4 part = *reinterpret_cast<const float4*>(&shared.groups[g].staged[head][dim]);
      o.x = fmaf(factor, part.x, o.x);
      o.y = fmaf(factor, part.y, o.y);
      o.z = fmaf(factor, part.z, o.z);
      o.w = fmaf(factor, part.w, o.w);
    }
    sparse_mla::write_dims<INVERSE_ROPE>(args, row, first_head + head, dim, o, shared.rotations);
  }
}

// One block's work: piece `split` of one row's keys, for one tile of heads.
__forceinline__ void attend(const SparseMlaDecodeArgs& args, int split, int head_tile, int row) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const bool produces = warp >= MATH_WARPS;
  const int g = ONE_PIECE  ? 0
                : produces ? (warp - MATH_WARPS) / PRODUCER_WARPS
                           : warp / GROUP_WARPS;
  const int piece_index = split * KEY_GROUPS + g;
  Group& group = shared.groups[g];
  const u32 full = ptx::shared_address(shared.full[g]),
            empty = ptx::shared_address(shared.empty[g]);
  const i64 tile_index = static_cast<i64>(row) * gridDim.y + head_tile;
  float* const values = args.exchange_values + tile_index * (PIECES * TILE_HEADS * MLA_DIMS);
  float2* const sums =
      reinterpret_cast<float2*>(args.exchange_sums) + tile_index * (NSPLIT * PIECES * TILE_HEADS);

  if (warp == MATH_WARPS) {
    if (lane < KEY_GROUPS * STAGES) {
      barrier::init(ptx::shared_address(&shared.full[0][0]) + lane * 8, Ring::ARRIVALS);
      barrier::init(ptx::shared_address(&shared.empty[0][0]) + lane * 8,
                    GROUP_WARPS * barrier::WARP_ARRIVALS);
    }
    barrier::publish_init();
  }
  release_successor();
  wait_for_predecessor();

  sparse_mla::Keys keys(args, row);
  // The sink of the head that this thread weighs: lane h of a warp the warp's head h where there is
  // one piece, otherwise any thread.
  const int weighs = !ONE_PIECE                       ? static_cast<int>(threadIdx.x)
                     : !produces && lane < WARP_HEADS ? warp * WARP_HEADS + lane
                                                      : TILE_HEADS;
  const float first_sink = sparse_mla::Merge<PIECES>::first_sink<HAS_SINK, TILE_HEADS>(
      args.sink + head_tile * TILE_HEADS, weighs);
  if (produces) {
    const int producer = (warp - MATH_WARPS) % PRODUCER_WARPS;
    Ring ring{full,
              empty,
              &group.tiles.rows[0][0][0],
              reinterpret_cast<u8*>(group.tiles.scales),
              &group.used[0][0],
              producer,
              lane};
    sparse_mla::RotationInputs rotation;
    if (INVERSE_ROPE) rotation.request(args, row, lane);
    ring.produce<PIECES>(args, keys, row, piece_index);
    if (INVERSE_ROPE && warp == MATH_WARPS) rotation.store(shared.rotations, lane);
  } else {
    MathWarp math(group, warp % GROUP_WARPS, lane, 1 + g);
    math.request_q(args.q +
                   (static_cast<i64>(row) * args.heads + head_tile * TILE_HEADS) * MLA_DIMS);
    keys.set_counts(ptx::load_int(args.window_counts + row), sparse_mla::selected_count(args, row));
    __syncthreads();  // barriers are set up; the producers call it too
    math.convert_q();
    const sparse_mla::Piece piece = sparse_mla::piece_of<PIECES>(keys.count, piece_index);
    const int tiles = (piece.end - piece.begin + TILE_KV - 1) / TILE_KV;
    int stage = 0;
    u32 parity = 0;
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      barrier::wait(full + stage * 8, parity);
      MathWarp::KeyTerm terms[MathWarp::PASSES][MathWarp::VECTOR];
      math.multiply_keys(stage);
      math.prepare_keys(terms, stage);
      math.sync();  // partial scores are complete
      math.weigh(terms);
      math.sync();  // weights are complete
      if (tile > 0) math.rescale();
      math.multiply_values(stage);
      if (tile + STAGES < tiles) barrier::arrive_warp(empty + stage * 8, lane);
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    publish(math, group, shared, values, sums, piece_index, g, first_sink);
  }
  if constexpr (NSPLIT > 1) {
    const sparse_mla::Receiver<PIECES, NSPLIT, TILE_HEADS, THREADS, HAS_SINK, INVERSE_ROPE>
        receiver{values, sums + split * (PIECES * TILE_HEADS), args.sink + head_tile * TILE_HEADS,
                 first_sink};
    receiver.run(args, shared.factors, row, head_tile * TILE_HEADS, split, threadIdx.x,
                 shared.rotations, [] { __syncthreads(); });
  } else {
    write_staged(args, shared, row, head_tile * TILE_HEADS, first_sink);
  }
}

#ifndef SPARSE_MLA_PREFILL  // sparse_mla_prefill.cuh takes everything but the kernel
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    sparse_mla_decode(const __grid_constant__ SparseMlaDecodeArgs args) {
  attend(args, blockIdx.x, blockIdx.y, blockIdx.z);
}
#endif

}  // namespace ingot::kernels
