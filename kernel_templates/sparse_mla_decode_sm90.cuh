// Sparse MLA decode on Hopper's wgmma, for many heads per block. What it computes, its arguments,
// numerics and contracts are those of sparse_mla_decode.cuh.
// Launch contract (host twin: launch_shape in sparse_mla_decode_sm90.space.hpp)
//   grid (NSPLIT, heads / TILE_HEADS, rows)   block (384)   arch sm_90a
//   smem sparse_mla_decode_sm90_smem_bytes(...), dynamic   programmatic dependent launch: yes
//   NSPLIT > 1: all blocks of the launch are resident at once (checked by the host), and the
//   exchange buffers hold 0xff bytes; one launch at a time uses them
//
// Operands are swapped: M is 64 keys (S^T = K Q^T) or 64 value dimensions (O^T = V^T P^T), N is
// TILE_HEADS. A comes from registers: raw FP8 by matrix loads, converted and scaled in flight, so
// that nothing dequantised is ever stored; B (Q and P) lies in shared memory in plain 8 x 8 blocks.
//
// Warps 0-3 and 4-7 are the math warpgroups, 8-11 bring keys. Warpgroup w takes the scores and the
// softmax of tiles w, w + 2, …, and half of the value dimensions of every tile. P of a tile is
// passed on through a ring of three, and the running maximum goes from tile to tile with it, so the
// second warpgroup runs behind the first and the tensor cores work for one while the other is in
// its softmax. No barrier joins both until the end.
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
constexpr int MATH_THREADS = 256, PRODUCER_WARPS = 4, THREADS = MATH_THREADS + 32 * PRODUCER_WARPS;
constexpr int HEAD_TILES = TILE_HEADS / 8;
constexpr int PIECES = NSPLIT;
// P is at most 2^(BOOST + GROWTH), within f16.
constexpr float GROWTH = 8.0f, BOOST = 6.0f;
// Group scales relative to a key's unit are at most 2^5, so that those 2^20 smaller are still
// exact. Below 2^-7 no unit is needed for codes, and rope values up to 511 fit.
constexpr int UNIT_HEADROOM = 5, UNIT_FLOOR = -7;
constexpr int P_TILES = 3, MAXIMA = 4;
// What the producers give up of the 168 registers at launch, the math warps take.
constexpr int PRODUCER_REGISTERS = 40, MATH_REGISTERS = 232;

constexpr int MATH = 1, WARPGROUP = 2;  // named barriers; WARPGROUP + 0 and + 1

static_assert(TILE_HEADS == 8 || TILE_HEADS == 16 || TILE_HEADS == 32 || TILE_HEADS == 64, "N");
static_assert(STAGES >= 2, "two tiles are in use at once");
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
  u64 full[STAGES], tables_full[STAGES], empty[STAGES], q_full, p_full[P_TILES];
  u16 factors[STAGES][QUANT_SLABS][TILE_KV];  // scale over unit, f16
  int used[STAGES][TILE_KV];
  int largest[2][2][TILE_HEADS];      // of a tile's scores: [step % 2][warpgroup], ordered ints
  float maximum[MAXIMA][TILE_HEADS];  // running maximum after tile i, at i % MAXIMA
  float sum[8][TILE_HEADS];           // of each math warp's weights
  float sinks[TILE_HEADS];            // -inf without
  int moved[MAXIMA];                  // whether any maximum moved at tile i
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

struct Math {
  SharedStorage& shared;
  int thread, lane, warp, group, warp_in_group, row, column;
  u64 q_blocks;
  u32 p_address;

  float o[4][TILE_HEADS / 2];  // 4 x 64 dimensions of this warpgroup's half
  float sum[HEAD_TILES][2];    // of this warpgroup's tiles' weights, per lane

  __forceinline__ explicit Math(SharedStorage& s)
      : shared(s),
        thread(threadIdx.x),
        lane(threadIdx.x % 32),
        warp(threadIdx.x / 32),
        group(threadIdx.x / 128),
        warp_in_group(threadIdx.x / 32 % 4),
        row(threadIdx.x % 32 / 4),
        column(threadIdx.x % 4) {
    q_blocks = wgmma_f16::descriptor(ptx::shared_address(shared.q), TILE_HEADS * 16);
    p_address = ptx::shared_address(shared.p);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int e = 0; e < TILE_HEADS / 2; ++e)
        o[i][e] = 0.0f;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n)
      sum[n][0] = sum[n][1] = 0.0f;
  }
  __forceinline__ static void sync_math() {
    ptx::sync_threads(MATH, MATH_THREADS);
  }
  __forceinline__ void sync_warpgroup() const {
    ptx::sync_threads(WARPGROUP + group, 128);
  }
  __forceinline__ u32 full(int stage) const {
    return ptx::shared_address(&shared.full[stage]);
  }
  __forceinline__ u32 tables_full(int stage) const {
    return ptx::shared_address(&shared.tables_full[stage]);
  }

  // Q from [heads][512] bf16 to blocks of f16. The 16 dimensions of an FP8 k-step are permuted so
  // that a lane's share of K is one 32-bit word of codes. Eight lanes take a diagonal of an 8 x 8
  // block of (head, 8 dimensions), so neither reads nor writes meet in a bank.
  __forceinline__ void convert_q() {
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
    sync_math();
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

  // Units and relative scales of one of this warpgroup's tiles.
  __forceinline__ void fill_tables(int stage) const {
    const int key = thread % TILE_KV, half = thread / TILE_KV % 2;
    const uint2 scales =
        SCALES_BESIDE ? *reinterpret_cast<const uint2*>(&shared.rows[stage][key][MLA_ENTRY_BYTES])
                      : shared.scales[SCALES_BESIDE ? 0 : stage][SCALES_BESIDE ? 0 : key];
    const bool used = shared.used[stage][key] != 0;
    const sparse_mla::Unit unit =
        used ? sparse_mla::unit_of<UNIT_HEADROOM, UNIT_FLOOR>(scales) : sparse_mla::Unit{0};
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (half * 4 + i < QUANT_SLABS)
        shared.factors[stage][half * 4 + i][key] = static_cast<u16>(sparse_mla::relative_scale(
            ((half == 0 ? scales.x : scales.y) >> (8 * i)) & 0xffu, unit));
    if (half == 0)
      shared.terms[stage][key] =
          make_float2(unit.inverse(),
                      used ? static_cast<float>(unit.exponent) : sparse_mla::negative_infinity());
  }

  // A fragments of K for one slab of 64 dimensions, relative to the keys' units: 4 k-steps.
  __forceinline__ void convert_keys(u32 (&x)[4][4], int slab, int stage) const {
    const int key = warp_in_group * 16 + row;  // and key + 8
    const u32 from =
        ptx::shared_address(&shared.rows[stage][warp_in_group * 16 + lane % 8][0]) + lane / 8 * 16;
    if (slab < QUANT_SLABS) {
      u32 low[4], high[4];
      ptx::load_matrices(low, from + slab * 64);
      ptx::load_matrices(high, from + slab * 64 + 8 * MLA_SMEM_ROW_BYTES);
      const u32 low_scale = shared.factors[stage][slab][key] * 0x10001u;
      const u32 high_scale = shared.factors[stage][slab][key + 8] * 0x10001u;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        x[j][0] = multiply_f16(fp8::to_f16(low[j]), low_scale);
        x[j][1] = multiply_f16(fp8::to_f16(high[j]), high_scale);
        x[j][2] = multiply_f16(fp8::high_to_f16(low[j]), low_scale);
        x[j][3] = multiply_f16(fp8::high_to_f16(high[j]), high_scale);
      }
    } else {
      const float low_scale = shared.terms[stage][key].x;
      const float high_scale = shared.terms[stage][key + 8].x;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 low[4], high[4];
        ptx::load_matrices(low, from + MLA_QUANT_DIMS + half * 64);
        ptx::load_matrices(high, from + MLA_QUANT_DIMS + half * 64 + 8 * MLA_SMEM_ROW_BYTES);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          x[2 * half + j][0] = scaled_f16(low[2 * j], low_scale, low_scale);
          x[2 * half + j][1] = scaled_f16(high[2 * j], high_scale, high_scale);
          x[2 * half + j][2] = scaled_f16(low[2 * j + 1], low_scale, low_scale);
          x[2 * half + j][3] = scaled_f16(high[2 * j + 1], high_scale, high_scale);
        }
      }
    }
  }
  // S^T of 64 keys, relative to their units. Conversion of the next 64 dimensions overlaps the mma
  // of the last ones.
  __forceinline__ void multiply_keys(float (&s)[TILE_HEADS / 2], int stage) const {
    u32 a[2][4][4];
    convert_keys(a[0], 0, stage);
#pragma unroll
    for (int slab = 0; slab < 8; ++slab) {
      wgmma_f16::fence();
#pragma unroll
      for (int j = 0; j < 4; ++j)
        wgmma_f16::multiply<TILE_HEADS>(
            s, a[slab % 2][j], wgmma_f16::advance(q_blocks, (slab * 4 + j) * TILE_HEADS * 32),
            slab + j > 0);
      wgmma_f16::commit();
      if (slab == 7) break;
      if (slab > 0) wgmma_f16::wait<1>();
      convert_keys(a[(slab + 1) % 2], slab + 1, stage);
    }
    wgmma_f16::wait<0>();
    wgmma_f16::hold(s);
  }

  __forceinline__ float2 heads_of(const float* of, int n) const {
    return *reinterpret_cast<const float2*>(&of[n * 8 + 2 * column]);
  }
  // The exact largest score of each head in a tile, over the warpgroup.
  __forceinline__ void find_largest(const float (&s)[TILE_HEADS / 2], int step_parity) {
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
      atomicMax(
          &shared.largest[step_parity][group][(base + first / 2) * 8 + 2 * column + first % 2],
          ordered(largest[0]));
    }
    sync_warpgroup();
  }

  // Softmax of one of this warpgroup's tiles: passes P and the running maximum on.
  __forceinline__ void weigh(float (&s)[TILE_HEADS / 2], int tile, int stage) {
    const int step_parity = tile / 2 % 2, key = warp_in_group * 16 + row;
    const float2 low = shared.terms[stage][key], high = shared.terms[stage][key + 8];
    // Products relative to units, to scores plus log2(unit), base 2.
    const float low_scale = sparse_mla::SCORE_SCALE * sparse_mla::Unit::of_inverse(low.x).value();
    const float high_scale = sparse_mla::SCORE_SCALE * sparse_mla::Unit::of_inverse(high.x).value();
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[4 * n + e] = fmaf(s[4 * n + e], low_scale, low.y);
        s[4 * n + 2 + e] = fmaf(s[4 * n + 2 + e], high_scale, high.y);
      }
    if (tile > 0) barrier::wait(p_full(tile - 1), (tile - 1) / P_TILES & 1);
    const float(&before)[TILE_HEADS] = shared.maximum[(tile + MAXIMA - 1) % MAXIMA];
    bool grows = false;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      const float2 old = heads_of(before, n);
      grows |= fmaxf(s[4 * n], s[4 * n + 2]) > old.x + GROWTH ||
               fmaxf(s[4 * n + 1], s[4 * n + 3]) > old.y + GROWTH;
    }
    // Only when a maximum moves is it needed exactly; in most tiles none does.
    const bool moves = ptx::sync_threads_or(WARPGROUP + group, 128, grows);
    float(&after)[TILE_HEADS] = shared.maximum[tile % MAXIMA];
    const int head = thread % 128;
    if (moves) {
      find_largest(s, step_parity);
      if (head < TILE_HEADS) {
        const float largest = from_ordered(shared.largest[step_parity][group][head]);
        after[head] = largest > before[head] + GROWTH ? largest : before[head];
      }
      sync_warpgroup();
    } else if (head < TILE_HEADS) {
      after[head] = before[head];  // for the other warpgroup
    }
    if (head < TILE_HEADS)  // read last before the previous barrier
      shared.largest[step_parity ^ 1][group][head] = ordered(sparse_mla::negative_infinity());
    if (thread % 128 == 0) shared.moved[tile % MAXIMA] = moves;
    const float* const now = moves ? after : before;
    // `sum` is relative to the maximum after this warpgroup's last tile, two tiles ago.
    if (moves || (tile > 0 && shared.moved[(tile + MAXIMA - 1) % MAXIMA] != 0)) {
#pragma unroll
      for (int n = 0; n < HEAD_TILES; ++n) {
        const float2 own = heads_of(shared.maximum[(tile + MAXIMA - 2) % MAXIMA], n);
        const float2 m = heads_of(now, n);
        sum[n][0] *= own.x == m.x ? 1.0f : exp2_approx(own.x - m.x);
        sum[n][1] *= own.y == m.y ? 1.0f : exp2_approx(own.y - m.y);
      }
    }
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
        *reinterpret_cast<u32*>(&p[((warp_in_group * 2 + y) * HEAD_TILES + n) * 64 + lane * 2]) =
            ptx::transpose_matrix(pack_f16(weight[y][0], weight[y][1]));
    }
    barrier::publish_to_async_proxy();
    __syncwarp();
    if (lane == 0) barrier::arrive(p_full(tile));
  }
  __forceinline__ u32 p_full(int tile) const {
    return ptx::shared_address(&shared.p_full[tile % P_TILES]);
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

  // A fragments of V^T for 64 dimensions: 4 k-steps of 16 keys. The bytes of two keys that a
  // transposed load brings together belong to dimensions 2 * row and 2 * row + 1, which are taken
  // as rows row and row + 8 of A; rope dimensions lie in order.
  __forceinline__ void convert_values(u32 (&x)[4][4], int i, int stage) const {
    const u32 rows = ptx::shared_address(&shared.rows[stage][0][0]);
    if (i < 3 || group == 0) {
      const int slab = group * 4 + i;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        u32 r[4];
        ptx::load_matrices_transposed(
            r, rows + (half * 32 + lane) * MLA_SMEM_ROW_BYTES + slab * 64 + warp_in_group * 16);
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          const u16* factor = &shared.factors[stage][slab][half * 32 + y * 16 + 2 * column];
          const u32 low_scale = *reinterpret_cast<const u32*>(factor);
          const u32 high_scale = *reinterpret_cast<const u32*>(factor + 8);
          const u32 low = __byte_perm(r[2 * y], 0, 0x3120);
          const u32 high = __byte_perm(r[2 * y + 1], 0, 0x3120);
          x[half * 2 + y][0] = multiply_f16(fp8::to_f16(low), low_scale);
          x[half * 2 + y][1] = multiply_f16(fp8::high_to_f16(low), low_scale);
          x[half * 2 + y][2] = multiply_f16(fp8::to_f16(high), high_scale);
          x[half * 2 + y][3] = multiply_f16(fp8::high_to_f16(high), high_scale);
        }
      }
    } else {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        u32 r[4];
        ptx::load_matrices_transposed(
            r, rows + (step * 16 + lane % 8 + lane / 16 * 8) * MLA_SMEM_ROW_BYTES + MLA_QUANT_DIMS +
                   warp_in_group * 32 + lane / 8 % 2 * 16);
#pragma unroll
        for (int y = 0; y < 2; ++y) {  // keys 2 * column, + 1 and 8 more
          const float2* term = &shared.terms[stage][step * 16 + y * 8 + 2 * column];
          x[step][2 * y] = scaled_f16(r[2 * y], term[0].x, term[1].x);
          x[step][2 * y + 1] = scaled_f16(r[2 * y + 1], term[0].x, term[1].x);
        }
      }
    }
  }
  // O^T += V^T P^T of one tile, for this warpgroup's 256 dimensions.
  __forceinline__ void multiply_values(int tile, int stage, bool release) {
    const u64 weights = wgmma_f16::descriptor(
        p_address + tile % P_TILES * (TILE_HEADS * TILE_KV * 2), TILE_HEADS * 16);
    barrier::wait(full(stage), tile / STAGES & 1);
    barrier::wait(tables_full(stage), tile / STAGES & 1);
    u32 a[2][4][4];
    convert_values(a[0], 0, stage);  // needs no P yet
    barrier::wait(p_full(tile), tile / P_TILES & 1);
    rescale(tile);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      wgmma_f16::fence();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        wgmma_f16::multiply<TILE_HEADS>(o[i], a[i % 2][step],
                                        wgmma_f16::advance(weights, step * TILE_HEADS * 32), 1);
      wgmma_f16::commit();
      if (i == 3) break;
      if (i > 0) wgmma_f16::wait<1>();
      convert_values(a[(i + 1) % 2], i + 1, stage);
      if (i == 2 && release) {  // that was the last read of the tile
        __syncwarp();
        if (lane == 0) barrier::arrive(ptx::shared_address(&shared.empty[stage]));
      }
    }
    wgmma_f16::wait<0>();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma_f16::hold(o[i]);
  }

  // Per head, over the whole piece: m in shared.maximum[last], l of all warps' weights added up.
  __forceinline__ void finish_sums(int tiles) {
    const int last = (tiles + MAXIMA - 1) % MAXIMA;
    // This warpgroup's sums are relative to the maximum after its own last tile.
    const int own = tiles > 0 ? tiles - 1 - ((tiles - 1 - group) & 1) : -1;
#pragma unroll
    for (int n = 0; n < HEAD_TILES; ++n) {
      const int head = n * 8 + 2 * column;
      const float2 now = *reinterpret_cast<const float2*>(&shared.maximum[last][head]);
      const float2 mine =
          *reinterpret_cast<const float2*>(&shared.maximum[(own + MAXIMA) % MAXIMA][head]);
      if (mine.x != now.x) sum[n][0] *= exp2_approx(mine.x - now.x);
      if (mine.y != now.y) sum[n][1] *= exp2_approx(mine.y - now.y);
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int lanes = 4; lanes < 32; lanes *= 2)
          sum[n][e] += __shfl_xor_sync(0xffffffffu, sum[n][e], lanes);
      if (row == 0)
        *reinterpret_cast<float2*>(&shared.sum[warp][head]) = make_float2(sum[n][0], sum[n][1]);
    }
    sync_math();
  }
  __forceinline__ float first_sink() const {
    const int head = sparse_mla::Merge<PIECES>::first_head(thread);
    return head < TILE_HEADS ? shared.sinks[head] : sparse_mla::negative_infinity();
  }
  __forceinline__ float2 total_of(int head, int tiles) const {
    float total = 0.0f;
#pragma unroll
    for (int w = 0; w < 8; ++w)
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
__forceinline__ void write_whole(Math& math, const SparseMlaDecodeArgs& args, int row,
                                 int first_head, int tiles) {
  SharedStorage& shared = math.shared;
  math.finish_sums(tiles);  // everyone is also done with the ring
  using Weights = sparse_mla::Merge<PIECES>;
  Weights::factors<HAS_SINK, TILE_HEADS, MATH_THREADS>(
      shared.pieces, shared.sinks, math.first_sink(),
      Weights::merges_first<TILE_HEADS>(math.thread)
          ? math.total_of(Weights::first_head(math.thread), tiles)
          : Weights::none(),
      math.thread, [&](int, int head) { return math.total_of(head, tiles); });
  Math::sync_math();
  float2 factor[HEAD_TILES];
#pragma unroll
  for (int n = 0; n < HEAD_TILES; ++n)
    factor[n] = math.heads_of(shared.pieces[0], n);
  bf16* const staged = &shared.staged[0][0] + math.first_place<STAGED_STRIDE>();
  math.for_each_result<STAGED_STRIDE>(
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
  Math::sync_math();
  constexpr int WORDS = MLA_DIMS / 8;  // of 16 bytes in a head's result
#pragma unroll 4
  for (int i = math.thread; i < TILE_HEADS * WORDS; i += MATH_THREADS) {
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
__forceinline__ void exchange_and_write(Math& math, const SparseMlaDecodeArgs& args, int row,
                                        int first_head, int split, int tiles) {
  SharedStorage& shared = math.shared;
  const i64 tile = static_cast<i64>(row) * gridDim.y + blockIdx.y;
  float* const values = args.exchange_values + tile * (PIECES * TILE_HEADS * MLA_DIMS);
  float2* const sums =
      reinterpret_cast<float2*>(args.exchange_sums) + tile * (NSPLIT * PIECES * TILE_HEADS);
  float* const mine = values + split * (TILE_HEADS * MLA_DIMS) + math.first_place<MLA_DIMS>();
  math.for_each_result<MLA_DIMS>(
      [&](int offset, int, int, float first, float second, int distance) {
        if (distance == 1) {
          sparse_mla::send(mine + offset, first, second);
        } else {
          sparse_mla::send(mine + offset, first);
          sparse_mla::send(mine + offset + distance, second);
        }
      });
  math.finish_sums(tiles);
  for (int i = math.thread; i < NSPLIT * TILE_HEADS; i += MATH_THREADS) {
    const float2 total = math.total_of(i % TILE_HEADS, tiles);
    sparse_mla::send(reinterpret_cast<float*>(
                         sums + (i / TILE_HEADS * PIECES + split) * TILE_HEADS + i % TILE_HEADS),
                     total.x, total.y);
  }
  const sparse_mla::Receiver<PIECES, NSPLIT, TILE_HEADS, MATH_THREADS, HAS_SINK, INVERSE_ROPE>
      receiver{values, sums + split * (PIECES * TILE_HEADS), shared.sinks, math.first_sink()};
  receiver.run(args, shared.pieces, row, first_head, split, math.thread, shared.rotations,
               [] { Math::sync_math(); });
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    sparse_mla_decode_sm90(const __grid_constant__ SparseMlaDecodeArgs args) {
  SharedStorage& shared = *reinterpret_cast<SharedStorage*>(ptx::dynamic_shared_memory());
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int split = blockIdx.x, row = blockIdx.z, first_head = blockIdx.y * TILE_HEADS;
  const u32 q_full = ptx::shared_address(&shared.q_full);
  constexpr int FIRST_PRODUCER = MATH_THREADS / 32;

  if (warp == FIRST_PRODUCER) {
    if (lane < STAGES) {
      barrier::init(ptx::shared_address(&shared.full[lane]), Ring::ARRIVALS);
      barrier::init(ptx::shared_address(&shared.tables_full[lane]), 4);
      barrier::init(ptx::shared_address(&shared.empty[lane]), 8);
    }
    if (lane < P_TILES) barrier::init(ptx::shared_address(&shared.p_full[lane]), 4);
    if (lane == 0) barrier::init(q_full, 1);
    barrier::publish_init();
    __syncwarp();
  }
  release_successor();
  wait_for_predecessor();

  sparse_mla::Keys keys(args, row);
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
  } else {
    ptx::take_registers<MATH_REGISTERS>();
    Math math(shared);
    float sink = sparse_mla::negative_infinity();
    if (HAS_SINK && math.thread < TILE_HEADS)
      sink = ptx::load_float(args.sink + first_head + math.thread);
    keys.set_counts(ptx::load_int(args.window_counts + row), sparse_mla::selected_count(args, row));
    if (math.thread < 2 * TILE_HEADS) {
      for (int i = 0; i < 2; ++i) {
        (&shared.largest[i][0][0])[math.thread] = ordered(sparse_mla::negative_infinity());
        (&shared.maximum[0][0])[2 * TILE_HEADS * i + math.thread] = sparse_mla::negative_infinity();
      }
    }
    __syncthreads();  // barriers are set up; the producers call it too
    if (math.thread < TILE_HEADS) shared.sinks[math.thread] = sink;
    if (INVERSE_ROPE && warp == FIRST_PRODUCER - 1) {
      sparse_mla::RotationInputs rotation;
      rotation.request(args, row, lane);
      rotation.store(shared.rotations, lane);
    }
    barrier::wait(q_full, 0);
    math.convert_q();
    barrier::publish_to_async_proxy();
    Math::sync_math();
    const sparse_mla::Piece piece = sparse_mla::piece_of<PIECES>(keys.count, split);
    const int tiles = (piece.end - piece.begin + TILE_KV - 1) / TILE_KV;
#pragma unroll 1
    for (int first = 0; first < tiles; first += 2) {
      const int tile = first + math.group;
      if (tile < tiles) {
        const int stage = tile % STAGES;
        float s[TILE_HEADS / 2];
        barrier::wait(math.full(stage), tile / STAGES & 1);
        math.fill_tables(stage);
        __syncwarp();
        if (lane == 0) barrier::arrive(math.tables_full(stage));
        barrier::wait(math.tables_full(stage), tile / STAGES & 1);
        math.multiply_keys(s, stage);
        math.weigh(s, tile, stage);
      }
#pragma unroll 1
      for (int t = first; t < min(first + 2, tiles); ++t) {
        const int stage = t % STAGES;
        math.multiply_values(t, stage, t + STAGES < tiles);
      }
    }
    if constexpr (NSPLIT == 1)
      write_whole(math, args, row, first_head, tiles);
    else
      exchange_and_write(math, args, row, first_head, split, tiles);
  }
}

}  // namespace ingot::kernels
