// Sparse MLA decode on Hopper's wgmma, for many heads per block. What it computes, its arguments,
// numerics and contracts are those of sparse_mla_decode.cuh.
// Launch contract (host twin: launch_shape in sparse_mla_decode_sm90.space.hpp)
//   grid (NSPLIT, heads / TILE_HEADS, rows)   block (512)   arch sm_90a
//   smem sparse_mla_decode_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   NSPLIT > 1: all blocks of the launch are resident at once (checked by the host), and the
//   exchange buffers hold 0xff bytes; one launch at a time uses them
//
// Operands are swapped: M is 64 keys (S^T = K Q^T) or 64 value dimensions (O^T = V^T P^T), N is
// TILE_HEADS. A comes from registers: raw FP8 by matrix loads, converted and scaled in flight, so
// that nothing dequantised is ever stored; B (Q and P) lies in shared memory in plain 8 x 8 blocks.
//
// Warps 0-3 take the scores and the softmax of every tile, 4-7 and 8-11 half of the value
// dimensions each, 12-15 bring keys. P of a tile is passed on through a ring of three with the
// running maximum, so the tensor cores work on the values of one tile while the scores of the next
// are made. The value warps, which have the least to do, also convert Q and fill the tables of
// scales.
//
// Rope dimensions enter as f16 relative to the key's unit: exact for values between 2^-14 and 2^9
// units; smaller ones are rounded to 2^-24 units.
#include "common/barrier.cuh"
#include "common/f16.cuh"
#include "common/fp8.cuh"
#include "common/launch.cuh"
#include "common/ptx.cuh"
#include "common/wgmma_f16.cuh"
#include "sparse_mla_decode_sm90.args.h"
#ifndef INGOT_PARAMS_GENERATED  // editor and stand-alone nvcc see the defaults
#define PARAM(type, name, value, doc) constexpr type name = value;
#include "sparse_mla_decode_sm90.params.def"
#undef PARAM
#endif
constexpr bool BULK_COPY = true;
#include "common/sparse_mla.cuh"
#include "common/sparse_mla_producer.cuh"

namespace ingot::kernels {

constexpr int TILE_KV = MLA_SM90_TILE_KV, QUANT_SLABS = 7;
constexpr int SCORE_THREADS = 128, VALUE_THREADS = 256, PRODUCER_WARPS = 4;
constexpr int FIRST_VALUE_WARP = SCORE_THREADS / 32;
constexpr int FIRST_PRODUCER = FIRST_VALUE_WARP + VALUE_THREADS / 32;
constexpr int THREADS = 32 * (FIRST_PRODUCER + PRODUCER_WARPS);
constexpr int HEAD_TILES = TILE_HEADS / 8;
constexpr int PIECES = NSPLIT;
// P is at most 2^(BOOST + GROWTH), within f16.
constexpr float GROWTH = 8.0f, BOOST = 6.0f;
// Group scales relative to a key's unit are at most 2^5, so that those 2^20 smaller are still
// exact. Below 2^-7 no unit is needed for codes, and rope values up to 511 fit.
constexpr int UNIT_HEADROOM = 5, UNIT_FLOOR = -7;
// A maximum is read until the values of the next tile are done with it.
constexpr int P_TILES = 3, MAXIMA = P_TILES + 1;
// Each role's share of the 128 registers per thread at launch.
constexpr int SCORE_REGISTERS = 104, VALUE_REGISTERS = 192, PRODUCER_REGISTERS = 24;
static_assert(SCORE_REGISTERS * SCORE_THREADS + VALUE_REGISTERS * VALUE_THREADS +
                      PRODUCER_REGISTERS * 32 * PRODUCER_WARPS <=
                  65536,
              "the roles share the register file");

constexpr int SCORE_BARRIER = 1, VALUE_BARRIER = 2;  // named barriers

static_assert(TILE_HEADS == 8 || TILE_HEADS == 16 || TILE_HEADS == 32 || TILE_HEADS == 64, "N");
static_assert(STAGES >= 2, "tables of the next tile are filled while this one is in use");
static_assert(STAGES <= 32, "one lane sets up one stage");
static_assert(NSPLIT >= 1 && NSPLIT <= 64 && MLA_DIMS % (4 * NSPLIT) == 0, "whole float4s");

constexpr int STAGED_STRIDE = MLA_DIMS + 8;  // bf16; stores of fragments meet in no bank

struct alignas(128) SharedStorage {
  union {
    u8 rows[STAGES][TILE_KV][MLA_SMEM_ROW_BYTES];
    bf16 staged[TILE_HEADS][STAGED_STRIDE];  // the finished result, NSPLIT == 1
  };
  // Q [64 blocks of 8 dimensions][heads][8], as it came ([heads][512]) until it is converted.
  alignas(16) u16 q[TILE_HEADS * MLA_DIMS];
  alignas(16) u16 p[P_TILES][TILE_HEADS * TILE_KV];  // [8 blocks of 8 keys][heads][8]
  uint2 scales[SCALES_BESIDE ? 1 : STAGES][SCALES_BESIDE ? 1 : TILE_KV];
  float2 terms[STAGES][TILE_KV];     // 1 / unit, and log2(unit) or -inf
  float pieces[PIECES][TILE_HEADS];  // factors of the pieces' O
  float2 rotations[MLA_ROPE_DIMS / 2];
  u64 full[STAGES], tables_full[STAGES], empty[STAGES], p_full[P_TILES], p_empty[P_TILES];
  u64 q_full, q_converted, sums_full;
  u16 factors[STAGES][QUANT_SLABS][TILE_KV];  // scale over unit, f16
  int used[STAGES][TILE_KV];
  int largest[2][TILE_HEADS];               // of a tile's scores: [tile % 2], ordered ints
  float maximum[MAXIMA][TILE_HEADS];        // running maximum after tile i, at i % MAXIMA
  float sum[FIRST_VALUE_WARP][TILE_HEADS];  // of each score warp's weights
  float sinks[TILE_HEADS];                  // -inf without
  int moved[MAXIMA];                        // whether any maximum moved at tile i
};
static_assert(sizeof(SharedStorage) <=
                  sparse_mla_decode_sm90_smem_bytes(TILE_HEADS, STAGES, NSPLIT, SCALES_BESIDE),
              "the host's formula covers the storage");
static_assert(sizeof(SharedStorage) + 127 >=
                  sparse_mla_decode_sm90_smem_bytes(TILE_HEADS, STAGES, NSPLIT, SCALES_BESIDE),
              "the host's formula wastes nothing");
static_assert(sizeof(bf16[TILE_HEADS][STAGED_STRIDE]) <= STAGES * TILE_KV * MLA_SMEM_ROW_BYTES,
              "the result fits over the ring");

using Ring = sparse_mla::Ring<STAGES, TILE_KV, PRODUCER_WARPS>;

// Floats as ints of the same order, for atomicMax.
__forceinline__ int ordered(float x) {
  const int bits = __float_as_int(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}
__forceinline__ float from_ordered(int bits) {
  return __int_as_float(bits < 0 ? bits ^ 0x7fffffff : bits);
}
__forceinline__ u32 scaled_f16(u32 bf16_pair, float low_factor, float high_factor) {
  return pack_f16(low_to_float(bf16_pair) * low_factor, high_to_float(bf16_pair) * high_factor);
}

// What both math roles know of themselves and of the shared state.
struct Role {
  SharedStorage& shared;
  int thread, lane, row, column;  // thread: of the role; row and column: of a fragment

  __forceinline__ Role(SharedStorage& s, int first_thread)
      : shared(s),
        thread(threadIdx.x - first_thread),
        lane(threadIdx.x % 32),
        row(threadIdx.x % 32 / 4),
        column(threadIdx.x % 4) {}
  __forceinline__ u32 full(int stage) const { return ptx::shared_address(&shared.full[stage]); }
  __forceinline__ u32 tables_full(int stage) const {
    return ptx::shared_address(&shared.tables_full[stage]);
  }
  __forceinline__ u32 p_full(int tile) const {
    return ptx::shared_address(&shared.p_full[tile % P_TILES]);
  }
  __forceinline__ u32 p_empty(int tile) const {
    return ptx::shared_address(&shared.p_empty[tile % P_TILES]);
  }
  __forceinline__ void arrive_warp(u32 barrier) const {
    __syncwarp();
    if (lane == 0) barrier::arrive(barrier);
  }
  __forceinline__ float2 heads_of(const float* of, int n) const {
    return *reinterpret_cast<const float2*>(&of[n * 8 + 2 * column]);
  }
};

// Warps 0-3: scores and softmax.
struct Scores : Role {
  int warp;
  u64 q_blocks;
  float sum[HEAD_TILES][2];  // of the weights so far, per lane

  __forceinline__ explicit Scores(SharedStorage& s) : Role(s, 0), warp(threadIdx.x / 32) {
    q_blocks = wgmma_f16::descriptor(ptx::shared_address(shared.q), TILE_HEADS * 16);
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n)
      sum[n][0] = sum[n][1] = 0.0f;
  }
  __forceinline__ static void sync() {
    ptx::sync_threads(SCORE_BARRIER, SCORE_THREADS);
  }

  // What a step of 32 dimensions needs from shared memory: raw words and, of codes, the scales.
  struct Raw {
    u32 words[8];  // codes take 4
    u32 scales[2];
  };
  static constexpr int STEPS = MLA_DIMS / 32, CODE_STEPS = MLA_QUANT_DIMS / 32;
  __forceinline__ void load_keys(Raw& raw, int step, int stage) const {
    const int key = warp * 16 + row;  // and key + 8
    const u32 rows = ptx::shared_address(&shared.rows[stage][warp * 16 + lane % 8][0]);
    u32(&w)[4] = reinterpret_cast<u32(&)[4]>(raw.words);
    if (step < CODE_STEPS) {
      // 16 codes of keys 0 … 7, the next 16, then the same of keys 8 … 15.
      ptx::load_matrices(
          w, rows + lane / 16 * (8 * MLA_SMEM_ROW_BYTES) + lane / 8 % 2 * 16 + step * 32);
      raw.scales[0] = shared.factors[stage][step / 2][key];
      raw.scales[1] = shared.factors[stage][step / 2][key + 8];
    } else {
      const u32 from = rows + lane / 8 * 16 + MLA_QUANT_DIMS + (step - CODE_STEPS) * 64;
      ptx::load_matrices(w, from);
      ptx::load_matrices(reinterpret_cast<u32(&)[4]>(raw.words[4]), from + 8 * MLA_SMEM_ROW_BYTES);
      raw.scales[0] = __float_as_uint(shared.terms[stage][key].x);
      raw.scales[1] = __float_as_uint(shared.terms[stage][key + 8].x);
    }
  }
  // A fragments of K, relative to the keys' units: 2 k-steps.
  __forceinline__ static void convert_keys(u32 (&x)[2][4], const Raw& raw, int step) {
    if (step < CODE_STEPS) {
      const u32 low_scale = raw.scales[0] * 0x10001u, high_scale = raw.scales[1] * 0x10001u;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const u32 low = raw.words[j], high = raw.words[2 + j];
        x[j][0] = multiply_f16(fp8::to_f16(low), low_scale);
        x[j][1] = multiply_f16(fp8::to_f16(high), high_scale);
        x[j][2] = multiply_f16(fp8::high_to_f16(low), low_scale);
        x[j][3] = multiply_f16(fp8::high_to_f16(high), high_scale);
      }
    } else {
      const float low_scale = __uint_as_float(raw.scales[0]);
      const float high_scale = __uint_as_float(raw.scales[1]);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        x[j][0] = scaled_f16(raw.words[2 * j], low_scale, low_scale);
        x[j][1] = scaled_f16(raw.words[4 + 2 * j], high_scale, high_scale);
        x[j][2] = scaled_f16(raw.words[2 * j + 1], low_scale, low_scale);
        x[j][3] = scaled_f16(raw.words[4 + 2 * j + 1], high_scale, high_scale);
      }
    }
  }
  // S^T of 64 keys, relative to their units. Loads and conversion of the next 32 dimensions overlap
  // the mma of the last ones.
  __forceinline__ void multiply_keys(float (&s)[TILE_HEADS / 2], int stage) const {
    u32 a[2][2][4];
    Raw raw;
    load_keys(raw, 0, stage);
    convert_keys(a[0], raw, 0);
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step + 1 < STEPS) load_keys(raw, step + 1, stage);
      wgmma_f16::fence();
#pragma unroll
      for (int j = 0; j < 2; ++j)
        wgmma_f16::multiply<TILE_HEADS>(
            s, a[step % 2][j], wgmma_f16::advance(q_blocks, (step * 2 + j) * TILE_HEADS * 32),
            step + j > 0);
      wgmma_f16::commit();
      if (step + 1 == STEPS) break;
      if (step > 0) wgmma_f16::wait<1>();
      convert_keys(a[(step + 1) % 2], raw, step + 1);
    }
    wgmma_f16::wait<0>();
    wgmma_f16::hold(s);
  }

  // The exact largest score of each head in a tile, over the warpgroup.
  __forceinline__ void find_largest(const float (&s)[TILE_HEADS / 2], int parity) {
    constexpr int PART = HEAD_TILES < 4 ? HEAD_TILES : 4;  // n-tiles at once: registers are short
#pragma unroll
    for (int base = 0; base < HEAD_TILES; base += PART) {
      float largest[2 * PART];
#pragma unroll
      for (int n = 0; n < PART; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          largest[2 * n + e] = fmaxf(s[4 * (base + n) + e], s[4 * (base + n) + 2 + e]);
      // Over the 8 lanes of a column: each exchange halves the values that a lane still reduces.
      int left = 2 * PART, first = 0;
#pragma unroll
      for (int lanes = 16; lanes >= 4; lanes /= 2) {
        const bool upper = (lane & lanes) != 0;
        if (left > 1) {
          left /= 2;
#pragma unroll
          for (int i = 0; i < PART; ++i)
            if (i < left) {
              const float keep = upper ? largest[i + left] : largest[i];
              const float give = upper ? largest[i] : largest[i + left];
              largest[i] = fmaxf(keep, __shfl_xor_sync(0xffffffffu, give, lanes));
            }
          if (upper) first += left;
        } else {
          largest[0] = fmaxf(largest[0], __shfl_xor_sync(0xffffffffu, largest[0], lanes));
        }
      }
      atomicMax(&shared.largest[parity][(base + first / 2) * 8 + 2 * column + first % 2],
                ordered(largest[0]));
    }
    sync();
  }

  // Softmax of a tile: passes P and the running maximum on.
  __forceinline__ void weigh(float (&s)[TILE_HEADS / 2], int tile, int stage) {
    const int parity = tile % 2, key = warp * 16 + row;
    const float2 low = shared.terms[stage][key], high = shared.terms[stage][key + 8];
    // Products relative to units, to scores plus log2(unit), base 2.
    const float low_scale = sparse_mla::SCORE_SCALE * sparse_mla::Unit::of_inverse(low.x).value();
    const float high_scale = sparse_mla::SCORE_SCALE * sparse_mla::Unit::of_inverse(high.x).value();
    // Every score warp has left the tile before, so its maximum is there.
    if (tile > 0) barrier::wait(p_full(tile - 1), (tile - 1) / P_TILES & 1);
    const float(&before)[TILE_HEADS] = shared.maximum[(tile + MAXIMA - 1) % MAXIMA];
    float(&after)[TILE_HEADS] = shared.maximum[tile % MAXIMA];
    bool grows = false;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      const float2 old = heads_of(before, n);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[4 * n + e] = fmaf(s[4 * n + e], low_scale, low.y);
        s[4 * n + 2 + e] = fmaf(s[4 * n + 2 + e], high_scale, high.y);
      }
      grows |= fmaxf(s[4 * n], s[4 * n + 2]) > old.x + GROWTH ||
               fmaxf(s[4 * n + 1], s[4 * n + 3]) > old.y + GROWTH;
    }
    // P and the maximum of P_TILES tiles ago have been used.
    if (tile >= P_TILES) barrier::wait(p_empty(tile), (tile / P_TILES - 1) & 1);
    // Only when a maximum moves is it needed exactly; in most tiles none does.
    const bool moves = ptx::sync_threads_or(SCORE_BARRIER, SCORE_THREADS, grows);
    if (moves) {
      find_largest(s, parity);
      if (thread < TILE_HEADS) {
        const float largest = from_ordered(shared.largest[parity][thread]);
        after[thread] = largest > before[thread] + GROWTH ? largest : before[thread];
      }
      sync();
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n) {
        const float2 old = heads_of(before, n), now = heads_of(after, n);
        sum[n][0] *= old.x == now.x ? 1.0f : exp2_approx(old.x - now.x);
        sum[n][1] *= old.y == now.y ? 1.0f : exp2_approx(old.y - now.y);
      }
    } else if (thread < TILE_HEADS) {
      after[thread] = before[thread];
    }
    if (thread < TILE_HEADS)  // read last before the previous barrier
      shared.largest[parity ^ 1][thread] = ordered(sparse_mla::negative_infinity());
    if (thread == 0) shared.moved[tile % MAXIMA] = moves;
    const float* const now = moves ? after : before;
    u16* const p = shared.p[tile % P_TILES];
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      float weight[2][2];
      const float2 m = heads_of(now, n);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float largest = e ? m.y : m.x;
        const float base = largest == sparse_mla::negative_infinity() ? 0.0f : largest - BOOST;
        weight[0][e] = exp2_approx(s[4 * n + e] - base);
        weight[1][e] = exp2_approx(s[4 * n + 2 + e] - base);
        sum[n][e] = fmaf(weight[0][e], low.x, fmaf(weight[1][e], high.x, sum[n][e]));
      }
#pragma unroll
      for (int y = 0; y < 2; ++y)  // 8 keys x 8 heads, transposed to [head][key]
        *reinterpret_cast<u32*>(&p[((warp * 2 + y) * HEAD_TILES + n) * 64 + lane * 2]) =
            ptx::transpose_matrix(pack_f16(weight[y][0], weight[y][1]));
    }
    barrier::publish_to_async_proxy();
    arrive_warp(p_full(tile));
  }

  // l of this warp's weights, per head, over the whole piece.
  __forceinline__ void finish() {
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          sum[n][e] += __shfl_xor_sync(0xffffffffu, sum[n][e], lanes);
      if (row == 0)
        *reinterpret_cast<float2*>(&shared.sum[warp][n * 8 + 2 * column]) =
            make_float2(sum[n][0], sum[n][1]);
    }
    arrive_warp(ptx::shared_address(&shared.sums_full));
  }

  __forceinline__ void run(int tiles) {
    barrier::wait(ptx::shared_address(&shared.q_converted), 0);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int stage = tile % STAGES;
      float s[TILE_HEADS / 2];
      barrier::wait(full(stage), tile / STAGES & 1);
      barrier::wait(tables_full(stage), tile / STAGES & 1);
      multiply_keys(s, stage);
      weigh(s, tile, stage);
    }
    finish();
  }
};

// Warps 4-11: values, and what comes before and after the tiles.
struct Values : Role {
  int group, warp_in_group;
  u32 p_address;
  float o[4][TILE_HEADS / 2];  // 4 x 64 dimensions of this warpgroup's half

  __forceinline__ explicit Values(SharedStorage& s)
      : Role(s, SCORE_THREADS), group(thread / 128), warp_in_group(thread / 32 % 4) {
    p_address = ptx::shared_address(shared.p);
  }
  __forceinline__ static void sync() { ptx::sync_threads(VALUE_BARRIER, VALUE_THREADS); }

  // Q from [heads][512] bf16 to blocks of f16. The 16 dimensions of an FP8 k-step are permuted so
  // that a lane's share of K is one 32-bit word of codes. Eight lanes take a diagonal of an 8 x 8
  // block of (head, 8 dimensions), so neither reads nor writes meet in a bank.
  __forceinline__ void convert_q() {
    const int warp = thread / 32;
    constexpr int ITEMS = 2 * HEAD_TILES;
    uint4 in[ITEMS];
    const auto place = [&](int item, int& head, int& block) {
      constexpr int WARPS_ASIDE = 8 / HEAD_TILES;  // at the same heads
      const int half = warp / HEAD_TILES % WARPS_ASIDE + item * WARPS_ASIDE;
      head = warp % HEAD_TILES * 8 + lane % 8;
      block = half / 2 * 8 + ((lane % 8) ^ (half % 2 * 4 + lane / 8));
    };
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      int head, block;
      place(item, head, block);
      in[item] = *reinterpret_cast<const uint4*>(&shared.q[head * MLA_DIMS + block * 8]);
    }
    sync();
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
      int head, block;
      place(item, head, block);
      const u32 a = scaled_f16(in[item].x, 1.0f, 1.0f), b = scaled_f16(in[item].y, 1.0f, 1.0f),
                c = scaled_f16(in[item].z, 1.0f, 1.0f), d = scaled_f16(in[item].w, 1.0f, 1.0f);
      if (block < MLA_QUANT_DIMS / 8) {
        u16* to = &shared.q[(block / 2 * 2 * TILE_HEADS + head) * 8 + block % 2 * 4];
        *reinterpret_cast<uint2*>(to) = make_uint2(a, c);
        *reinterpret_cast<uint2*>(to + TILE_HEADS * 8) = make_uint2(b, d);
      } else {
        *reinterpret_cast<uint4*>(&shared.q[(block * TILE_HEADS + head) * 8]) =
            make_uint4(a, b, c, d);
      }
    }
  }

  // Units and relative scales of a tile, as soon as it has landed.
  __forceinline__ void fill_tables(int tile) const {
    const int stage = tile % STAGES, key = thread % TILE_KV, part = thread / TILE_KV;
    barrier::wait(full(stage), tile / STAGES & 1);
    const uint2 scales =
        SCALES_BESIDE ? *reinterpret_cast<const uint2*>(&shared.rows[stage][key][MLA_ENTRY_BYTES])
                      : shared.scales[SCALES_BESIDE ? 0 : stage][SCALES_BESIDE ? 0 : key];
    const bool used = shared.used[stage][key] != 0;
    const sparse_mla::Unit unit =
        used ? sparse_mla::unit_of<UNIT_HEADROOM, UNIT_FLOOR>(scales) : sparse_mla::Unit{0};
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (part * 2 + i < QUANT_SLABS)
        shared.factors[stage][part * 2 + i][key] = static_cast<u16>(sparse_mla::relative_scale(
            ((part < 2 ? scales.x : scales.y) >> (16 * (part % 2) + 8 * i)) & 0xffu, unit));
    if (part == 3)
      shared.terms[stage][key] =
          make_float2(unit.inverse(),
                      used ? static_cast<float>(unit.exponent) : sparse_mla::negative_infinity());
    arrive_warp(tables_full(stage));
  }

  // O from the maximum before `tile` to the one after it.
  __forceinline__ void rescale(int tile) {
    if (shared.moved[tile % MAXIMA] == 0) return;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      const int head = n * 8 + 2 * column;
      const float2 old =
          *reinterpret_cast<const float2*>(&shared.maximum[(tile + MAXIMA - 1) % MAXIMA][head]);
      const float2 now = *reinterpret_cast<const float2*>(&shared.maximum[tile % MAXIMA][head]);
      const float even = old.x == now.x ? 1.0f : exp2_approx(old.x - now.x);
      const float odd = old.y == now.y ? 1.0f : exp2_approx(old.y - now.y);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        o[i][4 * n] *= even;
        o[i][4 * n + 1] *= odd;
        o[i][4 * n + 2] *= even;
        o[i][4 * n + 3] *= odd;
      }
    }
  }

  // A fragments of V^T for 64 dimensions and 32 keys: 2 k-steps. The bytes of two keys that a
  // transposed load brings together belong to dimensions 2 * row and 2 * row + 1, which are taken
  // as rows row and row + 8 of A; rope dimensions lie in order.
  __forceinline__ void convert_values(u32 (&x)[2][4], int i, int half, int stage) const {
    const u32 rows = ptx::shared_address(&shared.rows[stage][half * 32][0]);
    if (i < 3 || group == 0) {
      const int slab = group * 4 + i;
      u32 r[4];
      ptx::load_matrices_transposed(
          r, rows + lane * MLA_SMEM_ROW_BYTES + slab * 64 + warp_in_group * 16);
#pragma unroll
      for (int y = 0; y < 2; ++y) {
        const u16* factor = &shared.factors[stage][slab][half * 32 + y * 16 + 2 * column];
        const u32 low_scale = *reinterpret_cast<const u32*>(factor);
        const u32 high_scale = *reinterpret_cast<const u32*>(factor + 8);
        const u32 low = __byte_perm(r[2 * y], 0, 0x3120);
        const u32 high = __byte_perm(r[2 * y + 1], 0, 0x3120);
        x[y][0] = multiply_f16(fp8::to_f16(low), low_scale);
        x[y][1] = multiply_f16(fp8::high_to_f16(low), low_scale);
        x[y][2] = multiply_f16(fp8::to_f16(high), high_scale);
        x[y][3] = multiply_f16(fp8::high_to_f16(high), high_scale);
      }
    } else {
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        u32 r[4];
        ptx::load_matrices_transposed(
            r, rows + (step * 16 + lane % 8 + lane / 16 * 8) * MLA_SMEM_ROW_BYTES + MLA_QUANT_DIMS +
                   warp_in_group * 32 + lane / 8 % 2 * 16);
#pragma unroll
        for (int y = 0; y < 2; ++y) {  // keys 2 * column, + 1 and 8 more
          const float2* term = &shared.terms[stage][half * 32 + step * 16 + y * 8 + 2 * column];
          x[step][2 * y] = scaled_f16(r[2 * y], term[0].x, term[1].x);
          x[step][2 * y + 1] = scaled_f16(r[2 * y + 1], term[0].x, term[1].x);
        }
      }
    }
  }
  // O^T += V^T P^T of one tile, for this warpgroup's 256 dimensions. Conversion of the next 32 keys
  // of 64 dimensions overlaps the mma of the last ones.
  __forceinline__ void multiply_values(int tile, int stage, int tiles) {
    const u64 weights = wgmma_f16::descriptor(
        p_address + tile % P_TILES * (TILE_HEADS * TILE_KV * 2), TILE_HEADS * 16);
    barrier::wait(tables_full(stage), tile / STAGES & 1);
    u32 a[2][2][4];
    convert_values(a[0], 0, 0, stage);  // needs no P yet
    barrier::wait(p_full(tile), tile / P_TILES & 1);
    rescale(tile);
    constexpr int PARTS = 8;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      wgmma_f16::fence();
#pragma unroll
      for (int step = 0; step < 2; ++step)
        wgmma_f16::multiply<TILE_HEADS>(
            o[part / 2], a[part % 2][step],
            wgmma_f16::advance(weights, (part % 2 * 2 + step) * TILE_HEADS * 32), 1);
      wgmma_f16::commit();
      if (part + 1 == PARTS) break;
      if (part > 0) wgmma_f16::wait<1>();
      convert_values(a[(part + 1) % 2], (part + 1) / 2, (part + 1) % 2, stage);
      if (part + 2 == PARTS && tile + STAGES < tiles)  // that was the last read of the tile
        arrive_warp(ptx::shared_address(&shared.empty[stage]));
    }
    wgmma_f16::wait<0>();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma_f16::hold(o[i]);
    if (tile + P_TILES < tiles) arrive_warp(p_empty(tile));
  }

  __forceinline__ void run(int tiles) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < TILE_HEADS / 2; ++e)
        o[i][e] = 0.0f;
    if (tiles > 0) fill_tables(0);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile + 1 < tiles) fill_tables(tile + 1);
      multiply_values(tile, tile % STAGES, tiles);
    }
  }

  __forceinline__ float first_sink() const {
    const int head = sparse_mla::Merge<PIECES>::first_head(thread);
    return head < TILE_HEADS ? shared.sinks[head] : sparse_mla::negative_infinity();
  }
  // (m, l) of a head over the whole piece, once the sums are there.
  __forceinline__ void wait_for_sums() const {
    barrier::wait(ptx::shared_address(&shared.sums_full), 0);
  }
  __forceinline__ float2 total_of(int head, int tiles) const {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < FIRST_VALUE_WARP; ++w)
      total += shared.sum[w][head];
    return make_float2(shared.maximum[(tiles + MAXIMA - 1) % MAXIMA][head] - BOOST, total);
  }

  // Hands every pair of results to put(offset, n, odd, first, second, distance): `offset` is that
  // of head n * 8 + 2 * column + odd in rows of STRIDE elements, from the place of this thread's
  // first head and dimension; the pair lies `distance` dimensions apart.
  template <int STRIDE, class Put>
  __forceinline__ void for_each_result(Put&& put) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
        for (int odd = 0; odd < 2; ++odd) {
          const int offset = (n * 8 + odd) * STRIDE + i * 64;
          const float first = o[i][4 * n + odd], second = o[i][4 * n + 2 + odd];
          if (i < 3 || group == 0)
            put(offset + 2 * row, n, odd, first, second, 1);
          else
            put(offset + row, n, odd, first, second, 8);
        }
  }
  template <int STRIDE>
  __forceinline__ int first_place() const {
    return 2 * column * STRIDE + group * 256 + warp_in_group * 16;
  }
};

// An unsplit row: the result leaves through shared memory.
__forceinline__ void write_whole(Values& values, const SparseMlaDecodeArgs& args, int row,
                                 int first_head, int tiles) {
  SharedStorage& shared = values.shared;
  values.wait_for_sums();
  using Weights = sparse_mla::Merge<PIECES>;
  Weights::factors<HAS_SINK, TILE_HEADS, VALUE_THREADS>(
      shared.pieces, shared.sinks, values.first_sink(),
      Weights::merges_first<TILE_HEADS>(values.thread)
          ? values.total_of(Weights::first_head(values.thread), tiles)
          : Weights::none(),
      values.thread, [&](int, int head) { return values.total_of(head, tiles); });
  Values::sync();
  float2 factor[HEAD_TILES];
#pragma unroll
  for (int n = 0; n < HEAD_TILES; ++n)
    factor[n] = values.heads_of(shared.pieces[0], n);
  bf16* const staged = &shared.staged[0][0] + values.first_place<STAGED_STRIDE>();
  values.for_each_result<STAGED_STRIDE>(
      [&](int offset, int n, int odd, float first, float second, int distance) {
        const float f = odd == 0 ? factor[n].x : factor[n].y;
        const u32 pair = pack_bf16(first * f, second * f);
        if (distance == 1) {
          *reinterpret_cast<u32*>(staged + offset) = pair;
        } else {
          staged[offset].bits = static_cast<u16>(pair);
          staged[offset + distance].bits = static_cast<u16>(pair >> 16);
        }
      });
  Values::sync();
  constexpr int WORDS = MLA_DIMS / 8;  // of 16 bytes in a head's result
#pragma unroll 4
  for (int i = values.thread; i < TILE_HEADS * WORDS; i += VALUE_THREADS) {
    const int head = i / WORDS, dim = i % WORDS * 8;
    uint4 words = *reinterpret_cast<const uint4*>(&shared.staged[head][dim]);
    if (INVERSE_ROPE && dim >= MLA_QUANT_DIMS) {
      const float2* rotation = &shared.rotations[(dim - MLA_QUANT_DIMS) / 2];
      words.x = sparse_mla::turn_back(words.x, rotation[0]);
      words.y = sparse_mla::turn_back(words.y, rotation[1]);
      words.z = sparse_mla::turn_back(words.z, rotation[2]);
      words.w = sparse_mla::turn_back(words.w, rotation[3]);
    }
    *reinterpret_cast<uint4*>(
        args.out + (static_cast<i64>(row) * args.heads + first_head + head) * MLA_DIMS + dim) =
        words;
  }
}

// A split row: partial results go to the sibling blocks; this block finishes its share of
// dimensions.
__forceinline__ void exchange_and_write(Values& values, const SparseMlaDecodeArgs& args, int row,
                                        int first_head, int split, int tiles) {
  SharedStorage& shared = values.shared;
  const i64 tile = static_cast<i64>(row) * gridDim.y + blockIdx.y;
  float* const sent = args.exchange_values + tile * (PIECES * TILE_HEADS * MLA_DIMS);
  float2* const sums =
      reinterpret_cast<float2*>(args.exchange_sums) + tile * (NSPLIT * PIECES * TILE_HEADS);
  float* const mine = sent + split * (TILE_HEADS * MLA_DIMS) + values.first_place<MLA_DIMS>();
  values.for_each_result<MLA_DIMS>(
      [&](int offset, int, int, float first, float second, int distance) {
        if (distance == 1) {
          sparse_mla::send(mine + offset, first, second);
        } else {
          sparse_mla::send(mine + offset, first);
          sparse_mla::send(mine + offset + distance, second);
        }
      });
  values.wait_for_sums();
  for (int i = values.thread; i < NSPLIT * TILE_HEADS; i += VALUE_THREADS) {
    const float2 total = values.total_of(i % TILE_HEADS, tiles);
    sparse_mla::send(reinterpret_cast<float*>(
                         sums + (i / TILE_HEADS * PIECES + split) * TILE_HEADS + i % TILE_HEADS),
                     total.x, total.y);
  }
  const sparse_mla::Receiver<PIECES, NSPLIT, TILE_HEADS, VALUE_THREADS, HAS_SINK, INVERSE_ROPE>
      receiver{sent, sums + split * (PIECES * TILE_HEADS), shared.sinks, values.first_sink()};
  receiver.run(args, shared.pieces, row, first_head, split, values.thread, shared.rotations,
               [] { Values::sync(); });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sparse_mla_decode_sm90(const __grid_constant__ SparseMlaDecodeArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int split = blockIdx.x, row = blockIdx.z, first_head = blockIdx.y * TILE_HEADS;
  const u32 q_full = ptx::shared_address(&shared.q_full);

  if (warp == FIRST_PRODUCER) {
    if (lane < STAGES) {
      barrier::init(ptx::shared_address(&shared.full[lane]), Ring::ARRIVALS);
      barrier::init(ptx::shared_address(&shared.tables_full[lane]), VALUE_THREADS / 32);
      barrier::init(ptx::shared_address(&shared.empty[lane]), VALUE_THREADS / 32);
    }
    if (lane < P_TILES) {
      barrier::init(ptx::shared_address(&shared.p_full[lane]), SCORE_THREADS / 32);
      barrier::init(ptx::shared_address(&shared.p_empty[lane]), VALUE_THREADS / 32);
    }
    if (lane == 0) {
      barrier::init(q_full, 1);
      barrier::init(ptx::shared_address(&shared.q_converted), VALUE_THREADS / 32);
      barrier::init(ptx::shared_address(&shared.sums_full), SCORE_THREADS / 32);
    }
    barrier::publish_init();
    __syncwarp();
  }
  release_successor();
  wait_for_predecessor();

  sparse_mla::Keys keys(args, row);
  const auto tiles_of_piece = [&] {
    keys.set_counts(ptx::load_int(args.window_counts + row), sparse_mla::selected_count(args, row));
    const sparse_mla::Piece piece = sparse_mla::piece_of<PIECES>(keys.count, split);
    return (piece.end - piece.begin + TILE_KV - 1) / TILE_KV;
  };
  if (warp >= FIRST_PRODUCER) {
    ptx::give_registers<PRODUCER_REGISTERS>();
    if (warp == FIRST_PRODUCER && lane == 0) {
      // The heads of a tile are neighbours: one copy. Nothing can start without it.
      constexpr int Q_BYTES = TILE_HEADS * MLA_DIMS * 2;
      barrier::arrive_expect(q_full, Q_BYTES);
      barrier::copy_bulk(ptx::shared_address(shared.q),
                         args.q + (static_cast<i64>(row) * args.heads + first_head) * MLA_DIMS,
                         Q_BYTES, q_full);
    }
    __syncwarp();
    Ring ring{ptx::shared_address(shared.full),
              ptx::shared_address(shared.empty),
              &shared.rows[0][0][0],
              reinterpret_cast<u8*>(shared.scales),
              &shared.used[0][0],
              warp - FIRST_PRODUCER,
              lane};
    ring.produce<PIECES>(args, keys, row, split);
  } else if (warp < FIRST_VALUE_WARP) {
    ptx::give_registers<SCORE_REGISTERS>();
    Scores scores(shared);
    const int tiles = tiles_of_piece();
    if (scores.thread < TILE_HEADS) {
      for (int i = 0; i < 2; ++i)
        shared.largest[i][scores.thread] = ordered(sparse_mla::negative_infinity());
      for (int i = 0; i < MAXIMA; ++i)
        shared.maximum[i][scores.thread] = sparse_mla::negative_infinity();
    }
    __syncthreads();  // barriers are set up; all roles call it once
    if (INVERSE_ROPE && warp == 0) {
      sparse_mla::RotationInputs rotation;
      rotation.request(args, row, lane);
      rotation.store(shared.rotations, lane);
    }
    scores.run(tiles);
  } else {
    ptx::take_registers<VALUE_REGISTERS>();
    Values values(shared);
    float sink = sparse_mla::negative_infinity();
    if (HAS_SINK && values.thread < TILE_HEADS)
      sink = ptx::load_float(args.sink + first_head + values.thread);
    const int tiles = tiles_of_piece();
    __syncthreads();
    if (values.thread < TILE_HEADS) shared.sinks[values.thread] = sink;
    barrier::wait(q_full, 0);
    values.convert_q();
    barrier::publish_to_async_proxy();
    values.arrive_warp(ptx::shared_address(&shared.q_converted));
    values.run(tiles);
    if constexpr (NSPLIT == 1)
      write_whole(values, args, row, first_head, tiles);
    else
      exchange_and_write(values, args, row, first_head, split, tiles);
  }
}

}  // namespace ingot::kernels
